// Claims: a job's token speaks for that job and for no other, and only as long as it is
// good; a token of one kind is of no use as another; a replaced key is accepted while it is
// kept and no longer; no text that is not a token is taken for one.
package hookserver

import (
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"headroom/internal/testkit"
)

const (
	jobA, jobB = "application_1700000000000_0001", "application_1700000000000_0002"
	keyText    = "0123456789abcdef0123456789abcdef0123456789="
)

func newKeys(tb testing.TB, text string) *Keys {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "hooks.key")
	testkit.Check(tb, os.WriteFile(path, []byte(text), 0o600))
	return testkit.Need(OpenKeys(path))(tb)
}

// The form is agreed with the hooks in Java: JobTokenTest has the same line.
func TestFormOfTokens(t *testing.T) {
	t.Parallel()
	k, ends := newKeys(t, keyText+"\n"), time.Unix(1_800_000_000, 0)
	user := testkit.Need(k.User("ann", ends))(t)
	job := testkit.Need(JobToken(user, jobA))(t)
	got := user + "\n" + job + "\n" + k.Shares(ends)
	const want = "headroom-user-1.YW5u.1800000000.xoWSeFYcI5PvDSVp0h3QUj0PmKRQSUdR1Y8YC3o1ZBk\nheadroom-job-1.YW5u.1800000000.S57Uu01w7RSm0hVToI8hiw4xjyWW5zCCjMWZfCIaUcE\nheadroom-shares-1.1800000000.mrplj1J_JB4waXTU9Kzy9VF0dOEvt8qQet_ClVy9qqk"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestJobsTokenIsForItsJob(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	k := newKeys(t, keyText)
	ann, bob := testkit.Need(k.User("ann", now.Add(time.Hour)))(t), testkit.Need(k.User("bob", now.Add(time.Hour)))(t)
	token := testkit.Need(JobToken(ann, jobA))(t)
	if user, err := k.owner(now, token, jobA); err != nil || user != "ann" {
		t.Fatalf("its own job: %q, %v", user, err)
	}
	if _, err := k.owner(now, token, jobB); !errors.Is(err, errWrong) {
		t.Errorf("another job: %v", err)
	}
	if _, err := k.owner(now.Add(time.Hour), token, jobA); !errors.Is(err, errExpired) {
		t.Errorf("after its end: %v", err)
	}
	other := testkit.Need(JobToken(bob, jobA))(t)
	if user, err := k.owner(now, other, jobA); err != nil || user != "bob" {
		t.Errorf("another user's is that user's: %q, %v", user, err)
	}
	longer := strings.Replace(token, ".17", ".18", 1)
	forged := strings.Replace(other, strings.Split(other, ".")[1], strings.Split(token, ".")[1], 1)
	for about, shown := range map[string]string{
		"a user's": ann, "the plug-in's": k.Shares(now.Add(time.Hour)), "a longer life": longer, "another's name": forged,
		"another key's": testkit.Need(JobToken(testkit.Need(newKeys(t, keyText+"x").User("ann", now.Add(time.Hour)))(t), jobA))(t),
		"the key":       keyText, "nothing": "", "dots": "...", "a tail": token + ".", "no name": jobKind + ".." + strings.SplitN(token, ".", 3)[2],
	} {
		if _, err := k.owner(now, shown, jobA); !errors.Is(err, errWrong) {
			t.Errorf("%s: %v", about, err)
		}
	}
	for _, shown := range []string{token, ann, keyText, ""} {
		if err := k.shares(now, shown); !errors.Is(err, errWrong) {
			t.Errorf("shares with %.20q: %v", shown, err)
		}
	}
	if err := k.shares(now, k.Shares(now.Add(time.Second))); err != nil {
		t.Errorf("shares: %v", err)
	}
	if err := k.shares(now, k.Shares(now)); !errors.Is(err, errExpired) {
		t.Errorf("shares after the end: %v", err)
	}
}

func TestNamesAndUsersTokens(t *testing.T) {
	t.Parallel()
	k := newKeys(t, keyText)
	for _, name := range []string{"", "a b", "a\nb", strings.Repeat("a", nameMax+1), "\x7f"} {
		if _, err := k.User(name, time.Now()); !errors.Is(err, errName) {
			t.Errorf("%q was taken: %v", name, err)
		}
	}
	user := testkit.Need(k.User("ann", time.Now()))(t)
	for _, text := range []string{"", "x", strings.Replace(user, "user", "job", 1), user[:len(user)-2], user + ".", userKind + ".YW5u.1.AAAA"} {
		if token, err := JobToken(text, jobA); !errors.Is(err, errNoUserToken) {
			t.Errorf("%.40q makes %q, %v", text, token, err)
		}
	}
}

func TestKeysAreReplaced(t *testing.T) {
	t.Parallel()
	now := time.Now()
	path := filepath.Join(t.TempDir(), "hooks.key")
	write := func(text string) { testkit.Check(t, os.WriteFile(path, []byte(text), 0o600)) }
	write(keyText)
	k := testkit.Need(OpenKeys(path))(t)
	token := testkit.Need(JobToken(testkit.Need(k.User("ann", now.Add(time.Hour)))(t), jobA))(t)
	age := func() { k.file.mu.Lock(); defer k.file.mu.Unlock(); k.file.looked = time.Time{} }
	for _, c := range []struct {
		text string
		good bool
	}{{"new" + keyText + "\n" + keyText + "\n", true}, {"damaged", true}, {"new" + keyText, false}} {
		write(c.text)
		age()
		if _, err := k.owner(now, token, jobA); (err == nil) != c.good {
			t.Errorf("with %q: %v", c.text, err)
		}
	}
	if made := testkit.Need(k.User("ann", now))(t); made != testkit.Need(newKeys(t, "new"+keyText).User("ann", now))(t) {
		t.Error("the first key does not make the tokens")
	}
	for _, text := range []string{"", "short", strings.Repeat(keyText+"\n", keysMax+1), keyText + "\nshort"} {
		write(text)
		if _, err := OpenKeys(path); err == nil {
			t.Errorf("%.60q was taken", text)
		}
	}
}

func FuzzJobToken(f *testing.F) {
	k, now := newKeys(f, keyText), time.Unix(1_700_000_000, 0)
	user := testkit.Need(k.User("ann", now.Add(time.Hour)))(f)
	right := testkit.Need(JobToken(user, jobA))(f)
	f.Add(right, jobA)
	f.Add(right+"=", jobA)
	f.Add(user, jobB)
	f.Add("headroom-job-1.."+strings.Repeat("9", 40)+".", "")
	f.Fuzz(func(t *testing.T, token, job string) {
		if user, err := k.owner(now, token, job); err == nil && (user != "ann" || token != right || job != jobA) {
			t.Errorf("%q speaks for %q of %q", token, job, user)
		}
		if made, err := JobToken(token, job); err == nil && len(made) > len(token)+2*sha256.Size {
			t.Errorf("%d bytes of %d", len(made), len(token))
		}
		if k.shares(now, token) == nil && !strings.HasPrefix(token, sharesKind) {
			t.Errorf("%q reads shares", token)
		}
	})
}
