package command

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/rpc"
)

func debugCommand(o *operator) *cobra.Command {
	group := &cobra.Command{
		Use: "debug", Short: "Collect what a bug report needs; no promise of compatibility",
		Example: "  coordinator debug bundle c1.tar.gz",
	}
	group.AddCommand(&cobra.Command{
		Use: "bundle FILE", Short: "Write state, log, metrics and stacks of one server into one file", Args: cobra.ExactArgs(1),
		Long: "Write what a bug report needs into one gzipped tar file: build, configuration, the newest log lines, metrics,\n" +
			"status, nodes, alarms, events, health of the servers, what every goroutine does, and the last recording of a\n" +
			"missed tick. It asks the first server of --addr, whether that leads or not. It holds no key, no token and no\n" +
			"password: the configuration only names the files that do.",
		Example: "  coordinator debug bundle c1.tar.gz\n  coordinator debug bundle c2.tar.gz --addr 10.0.0.12:7400",
		RunE:    func(cmd *cobra.Command, args []string) error { return writeBundle(cmd, o, args[0]) },
	})
	return group
}

// bundleDeadline bounds collecting a bundle.
const bundleDeadline = 2 * time.Minute

func writeBundle(cmd *cobra.Command, o *operator, file string) (err error) {
	peers, addrs, err := o.reach()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return &cli.Error{Code: "exists", Exit: cli.ExitUsage, Err: err, Message: file + " exists", Hint: "name another file, or remove it"}
	} else if err != nil {
		return &cli.Error{Code: "write", Exit: cli.ExitFailed, Err: err, Message: err.Error(), Hint: "name a file in a folder that you may write"}
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), bundleDeadline)
	defer cancel()
	client := headroomv1connect.NewDebugServiceClient(peers.HTTP(), peers.URL(addrs[0]), peers.Options()...)
	err = packBundle(ctx, client, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return o.explain(rpc.AsCLI(errors.Join(err, os.Remove(file)), "collect a bundle", addrs[0]))
	}
	cli.Notef(cmd.ErrOrStderr(), "note: wrote %s; read it before you send it", file)
	return nil
}

// bundleMost bounds one file of a bundle, bytes: a recording has some megabytes.
const bundleMost = 64 << 20

// packBundle asks for a bundle and writes it as a gzipped tar file.
func packBundle(ctx context.Context, client headroomv1connect.DebugServiceClient, w io.Writer) error {
	in, err := client.CollectBundle(ctx, connect.NewRequest(&headroomv1.CollectBundleRequest{}))
	if err != nil {
		return err
	}
	packed := gzip.NewWriter(w)
	out := tar.NewWriter(packed)
	name, data := "", []byte(nil)
	add := func() error {
		if name == "" {
			return nil
		}
		h := &tar.Header{Name: path.Join("coordinator-bundle", path.Base(name)), Mode: 0o600, Size: int64(len(data)), ModTime: time.Now()}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		_, err := out.Write(data)
		return err
	}
	for in.Receive() {
		m := in.Msg()
		if m.GetName() != name {
			if err := add(); err != nil {
				return errors.Join(err, in.Close())
			}
			name, data = m.GetName(), nil
		}
		if data = append(data, m.GetPiece()...); len(data) > bundleMost {
			return errors.Join(fmt.Errorf("%s is larger than %d MiB", name, bundleMost>>20), in.Close())
		}
	}
	return errors.Join(in.Err(), add(), in.Close(), out.Close(), packed.Close())
}
