// Claims: a bundle is written whole and for its owner only; over a file that is
// there nothing is written, and nothing half remains.
package command

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
)

// bundler sends the same two files, and then err.
type bundler struct {
	headroomv1connect.UnimplementedDebugServiceHandler

	err error
}

func (b bundler) CollectBundle(_ context.Context, _ *connect.Request[headroomv1.CollectBundleRequest], out *connect.ServerStream[headroomv1.CollectBundleResponse]) error {
	for _, m := range []*headroomv1.CollectBundleResponse{{Name: "a.txt", Piece: []byte("one ")}, {Name: "a.txt", Piece: []byte("two")}, {Name: "../../empty.txt"}} {
		if err := out.Send(m); err != nil {
			return err
		}
	}
	return b.err
}

func runBundle(t *testing.T, b bundler, file string) error {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(headroomv1connect.NewDebugServiceHandler(b))
	server := httptest.NewUnstartedServer(mux)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	defer server.Close()
	root := New()
	root.SetArgs([]string{"debug", "bundle", file, "--addr", strings.TrimPrefix(server.URL, "http://")})
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	return root.ExecuteContext(t.Context())
}

func TestBundleIsWrittenWhole(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "c1.tar.gz")
	if err := runBundle(t, bundler{}, file); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	if info, err := f.Stat(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	unpacked, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for in := tar.NewReader(unpacked); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		got[h.Name] = string(data)
	}
	if len(got) != 2 || got["coordinator-bundle/a.txt"] != "one two" {
		t.Errorf("%v", got)
	}
	if _, ok := got["coordinator-bundle/empty.txt"]; !ok {
		t.Errorf("%v: a name may not lead out of the folder", got)
	}
	if e, ok := errors.AsType[*cli.Error](runBundle(t, bundler{}, file)); !ok || e.Code != "exists" {
		t.Errorf("over a file that is there: %v", e)
	}
}

func TestHalfABundleIsNone(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "c1.tar.gz")
	err := runBundle(t, bundler{err: connect.NewError(connect.CodePermissionDenied, errors.New("no"))}, file)
	if e, ok := errors.AsType[*cli.Error](err); !ok || e.Exit != cli.ExitDenied {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file remains: %v", err)
	}
}
