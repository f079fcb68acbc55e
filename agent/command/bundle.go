package command

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"headroom/agent"
	"headroom/agent/statedir"
	"headroom/internal/cli"
)

func newDebugCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "debug", Short: "Collect information for a bug report (output may change)",
		Example: "  powerd debug bundle",
	}
	cmd.AddCommand(newBundleCommand())
	return cmd
}

func newBundleCommand() *cobra.Command {
	var p place
	file := ""
	cmd := &cobra.Command{
		Use: "bundle", Short: "Write status, checks, configuration and state to one file",
		Long: "Write a gzipped tar file for a bug report: version, status, zones, the results of powerd check, the\n" +
			"configuration and the files of the state directory. It contains no keys and no passwords. The path of\n" +
			"the file is printed to stdout.",
		Example: "  powerd debug bundle\n  powerd debug bundle --out bundle.tar.gz", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return writeBundle(cmd, &p, file) },
	}
	p.flags(cmd)
	cmd.Flags().StringVar(&file, "out", "", "file to write (default powerd-bundle-TIME.tar.gz in the working directory)")
	return cmd
}

// bundleMax bounds a file of the state directory in a bundle; the largest is a few kilobytes.
const bundleMax = 1 << 20

func writeBundle(cmd *cobra.Command, p *place, file string) (err error) {
	s, err := p.find(cmd.Context())
	if err != nil {
		return err
	}
	now := time.Now()
	file = cmp.Or(file, "powerd-bundle-"+now.Format("20060102-150405")+".tar.gz")
	f, err := createOut(file, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	packed := gzip.NewWriter(f)
	b := &bundle{tar: tar.NewWriter(packed), now: now}
	b.json("version.json", versionJSON{Kind: "Version", API: "v1", Version: agent.Version})
	if s.status != nil {
		b.json("status.json", statusJSON(s.status))
	}
	if o, err := openOwn(s.root); err == nil {
		b.json("zones.json", cli.NewList("ZoneList", zoneRows(s, o)))
		b.err = errors.Join(b.err, o.close())
	}
	b.json("check.json", cli.NewList("Check", checkAll(cmd.Context(), p, false)))
	if s.cfg != nil {
		if data, err := yaml.Marshal(s.cfg); err == nil {
			b.add("powerd.yaml", data)
		}
	}
	for _, name := range []string{statedir.JournalFile, statedir.MemoryFile, statedir.HeldFile, statedir.CoordinatorsFile} {
		if s.stateDir == "" {
			break
		}
		if data, err := (statedir.OS{Dir: s.stateDir}).Read(name); err == nil && len(data) <= bundleMax {
			b.add("state/"+name, data)
		}
	}
	if err := errors.Join(b.err, b.tar.Close(), packed.Close()); err != nil {
		return err
	}
	cli.Notef(cmd.ErrOrStderr(), "note: review the file before you send it")
	_, err = fmt.Fprintln(cmd.OutOrStdout(), file)
	return err
}

// bundle collects files and keeps its first error.
type bundle struct {
	tar *tar.Writer
	now time.Time
	err error
}

func (b *bundle) json(name string, v any) {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		b.err = errors.Join(b.err, err)
		return
	}
	b.add(name, append(data, '\n'))
}

func (b *bundle) add(name string, data []byte) {
	if b.err != nil {
		return
	}
	h := &tar.Header{Name: "powerd-bundle/" + name, Mode: 0o600, Size: int64(len(data)), ModTime: b.now}
	if b.err = b.tar.WriteHeader(h); b.err == nil {
		_, b.err = b.tar.Write(data)
	}
}
