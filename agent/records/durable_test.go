package records

// Claim (P6): a control that is met while powerd runs is written only once its original would
// survive a power cut.

import (
	"io/fs"
	"log/slog"
	"os"
	"testing"

	"headroom/agent/config"
	"headroom/agent/health"
	"headroom/agent/originals"
	"headroom/agent/statedir"
	"headroom/internal/testkit"
	"headroom/rapl/sysfs"
)

// synced is a state directory of which only what was made durable is left.
type synced struct {
	statedir.Disk
	kept map[string][]byte
}

func (d synced) Durable(name string, data []byte) error {
	d.kept[name] = data
	return d.Disk.Durable(name, data)
}

func (d synced) Read(name string) ([]byte, error) {
	if data, ok := d.kept[name]; ok {
		return data, nil
	}
	return nil, fs.ErrNotExist
}

func TestControlMetLaterIsSavedFirst(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"first", "second"} {
		testkit.WriteFile(t, dir+"/"+name, "2400000\n")
	}
	root := testkit.Need(os.OpenRoot(dir))(t)
	defer func() { _ = root.Close() }()
	files := testkit.Need(sysfs.NewFiles(root))(t)
	defer func() { _ = files.Close() }()
	cfg := config.Defaults()
	cfg.Node, cfg.StateDir = "n01", t.TempDir()
	d := synced{statedir.OS{Dir: cfg.StateDir}, map[string][]byte{}}
	r := New(&cfg, slog.New(slog.DiscardHandler), health.New(slog.New(slog.DiscardHandler)), d)
	testkit.Check(t, r.Load(files))
	ceiling := func(name string) originals.Control {
		return originals.Control{Path: name, Kind: originals.Frequency, Label: name, Read: func() (originals.Value, error) {
			return originals.Value{Number: 2_400_000}, nil
		}}
	}
	testkit.Check(t, r.Save("boot-1", []originals.Control{ceiling("first")}))
	r.Start()
	defer r.Stop()
	if r.Saved(ceiling("second")) {
		t.Fatal("saved before anything was written")
	}
	done := <-r.Writer.Done()
	r.JournalStored(done.Err)
	if !r.Saved(ceiling("second")) {
		t.Fatal("never saved")
	}
	j := testkit.Need(originals.Load(d))(t)
	if len(j.Controls) != 2 || j.Controls[1].Path != "second" || j.Controls[1].Original != 2_400_000 {
		t.Errorf("a power cut leaves %+v", j.Controls)
	}
}
