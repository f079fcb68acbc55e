package command

import (
	"archive/tar"
	"cmp"
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
)

func debugCommand(o *operator) *cobra.Command {
	group := &cobra.Command{
		Use: "debug", Short: "Collect diagnostics for a bug report (output format is not stable)",
		Example: "  coordinator debug bundle --out c1.tar.gz",
	}
	group.AddCommand(debugBundle(o), debugTrace(o), debugRaftLog(o))
	return group
}

func debugBundle(o *operator) *cobra.Command {
	out := ""
	cmd := &cobra.Command{
		Use: "bundle [FILE]", Short: "Write diagnostics of one server to a file", Args: cobra.MaximumNArgs(1),
		Long: "Write what a bug report needs into one gzipped tar file: build, configuration, the newest log lines, metrics,\n" +
			"status, nodes, alarms, events, health of the servers, what every goroutine does, and the last recording of a\n" +
			"missed tick. It asks the first server of --addr, whether that leads or not. It holds no key, no token and no\n" +
			"password: the configuration only names the files that do.",
		Example: "  coordinator debug bundle\n  coordinator debug bundle --out c2.tar.gz --addr 10.0.0.12:7400",
		RunE: func(cmd *cobra.Command, args []string) error {
			file := cmp.Or(out, first(args), "coordinator-bundle-"+time.Now().Format("20060102-150405")+".tar.gz")
			return intoFile(cmd, o, file, "collect a bundle", bundleDeadline, packBundle)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "file to write (default coordinator-bundle-TIME.tar.gz in the working directory)")
	return cmd
}

func debugTrace(o *operator) *cobra.Command {
	d := 5 * time.Second
	cmd := &cobra.Command{
		Use: "trace FILE", Short: "Record an execution trace of one server", Args: cobra.ExactArgs(1),
		Long: "Record the first server of --addr for a while, into a file that go tool trace shows: where it waits, for whom,\n" +
			"and how long. It costs the server a few percent while it runs. What held up a missed tick is in the bundle,\n" +
			"where debug.flight_recorder is on.",
		Example: "  coordinator debug trace c1.trace --for 10s --addr 10.0.0.11:7400",
		RunE: func(cmd *cobra.Command, args []string) error {
			if d < time.Millisecond || d > traceMost {
				return cli.Usage("--for %v: a recording runs 1ms at least and %v at most", d, traceMost)
			}
			return intoFile(cmd, o, args[0], "record", d+bundleDeadline, func(ctx context.Context, client headroomv1connect.DebugServiceClient, w io.Writer) error {
				return copyTrace(ctx, client, d, w)
			})
		},
	}
	cmd.Flags().DurationVar(&d, "for", d, "duration of the recording, at most 30s")
	return cmd
}

const (
	// bundleDeadline bounds collecting a bundle.
	bundleDeadline = 2 * time.Minute
	// traceMost bounds a recording.
	traceMost = 30 * time.Second
)

// intoFile writes what one server sends into a new file, for its owner only:
// whole, or not at all.
func intoFile(
	cmd *cobra.Command, o *operator, file, doing string, deadline time.Duration,
	fetch func(context.Context, headroomv1connect.DebugServiceClient, io.Writer) error,
) (err error) {
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
	ctx, cancel := context.WithTimeout(cmd.Context(), deadline)
	defer cancel()
	client := headroomv1connect.NewDebugServiceClient(peers.HTTP(), peers.URL(addrs[0]), peers.Options()...)
	err = fetch(ctx, client, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return o.explain(ctx, failure{errors.Join(err, os.Remove(file)), doing, addrs[0], true})
	}
	cli.Notef(cmd.ErrOrStderr(), "note: read the file before you send it")
	_, err = fmt.Fprintln(cmd.OutOrStdout(), file)
	return err
}

func copyTrace(ctx context.Context, client headroomv1connect.DebugServiceClient, d time.Duration, w io.Writer) error {
	in, err := client.CollectTrace(ctx, connect.NewRequest(&headroomv1.CollectTraceRequest{DurationMs: uint32(d.Milliseconds())}))
	if err != nil {
		return err
	}
	size := 0
	for in.Receive() {
		n, err := w.Write(in.Msg().GetPiece())
		if err != nil {
			return errors.Join(err, in.Close())
		}
		size += n
	}
	if err := errors.Join(in.Err(), in.Close()); err != nil || size > 0 {
		return err
	}
	return errors.New("the server sent an empty recording")
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
