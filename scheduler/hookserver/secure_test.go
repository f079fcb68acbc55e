package hookserver

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"headroom/internal/testkit"
)

// asking is a request that shows an Authorization header.
func asking(header string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.Header.Set("Authorization", header)
	return r
}

func TestTokenIsRequired(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	secret := strings.Repeat("k", tokenMin)
	testkit.WriteFile(t, path, secret+"\n")
	g := &Guard{Token: testkit.Need(OpenToken(path))(t)}
	for header, want := range map[string]bool{
		"Bearer " + secret: true, "": false, secret: false, "Bearer ": false, "Bearer " + secret + "x": false, "Bearer " + secret[1:]: false,
	} {
		if err := g.Shares(asking(header)); (err == nil) != want {
			t.Errorf("shares with %q: %v", header, err)
		}
		who, err := g.Job(asking(header), "application_1_0001")
		if (err == nil) != want || who.All != want || who.May("ann") != want {
			t.Errorf("a job with %q: %+v, %v", header, who, err)
		}
	}
	var open *Guard // in the clear, on loopback
	if who, err := open.Job(asking(""), "application_1_0001"); err != nil || !who.All || open.Shares(asking("")) != nil {
		t.Errorf("without a guard: %+v, %v", who, err)
	}
}

func TestTokensThatAreNone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
	}{
		"short":               {"short", 0o600},
		"empty":               {"", 0o600},
		"long":                {strings.Repeat("k", tokenMax+1), 0o600},
		"of two words":        {"two words of one token", 0o600},
		"readable by anybody": {strings.Repeat("k", tokenMin), 0o644},
	} {
		path := filepath.Join(t.TempDir(), "token")
		testkit.Check(t, os.WriteFile(path, []byte(c.text), c.mode))
		testkit.Check(t, os.Chmod(path, c.mode))
		if _, err := OpenToken(path); err == nil {
			t.Errorf("a token %s was taken", name)
		}
	}
	if _, err := OpenToken(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is missing was taken")
	}
}
