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

func TestTokenIsRequired(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	secret := strings.Repeat("k", tokenMin)
	testkit.WriteFile(t, path, secret+"\n")
	token := testkit.Need(OpenToken(path))(t)
	h := token.Require(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { Answer(w, 1) }))
	for header, want := range map[string]int{
		"Bearer " + secret: http.StatusOK, "": http.StatusUnauthorized, secret: http.StatusUnauthorized,
		"Bearer ": http.StatusUnauthorized, "Bearer " + secret + "x": http.StatusUnauthorized, "Bearer " + secret[1:]: http.StatusUnauthorized,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.Header.Set("Authorization", header)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%q: %d, want %d", header, w.Code, want)
		}
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
