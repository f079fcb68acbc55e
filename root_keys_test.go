// Claims: every key that a page, an example, a unit or a help text names below /etc/headroom is in the
// folder of the program that uses it, and every command that installs a key lets that program's
// group read it and nobody else.
package headroom_test

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// keyFolders are the folders below /etc/headroom that only one group enters. hadoop is the
// ResourceManager's, whose group is the site's own.
func keyFolders() []string {
	return []string{"powerd", "coordinator", "scheduler", "master", "worker", "hadoop"}
}

func TestKeysAreInAFolderOfTheirProgram(t *testing.T) {
	t.Parallel()
	key := regexp.MustCompile(`/etc/headroom/([A-Za-z0-9_./$*-]+\.(?:key|keytab|token))\b`)
	for f, text := range texts(t) {
		for _, m := range key.FindAllStringSubmatch(text, -1) {
			folder, _, inFolder := strings.Cut(m[1], "/")
			switch {
			case inFolder && slices.Contains(keyFolders(), folder):
			case m[1] == "gossip.key": // of powerd and the coordinator, with a group of its own
			case strings.HasPrefix(f, "deploy/systemd/headroom") || f == "lab/test/nspawn/jobs_test.go": // closed there, should somebody keep it there
			default:
				t.Errorf("%s: %s is not in a folder of its program", f, m[0])
			}
		}
	}
}

func TestPagesInstallKeysForOneProgram(t *testing.T) {
	t.Parallel()
	found := 0
	for f, text := range markdown(t) {
		for line := range strings.Lines(text) {
			if _, command, ok := strings.Cut(line, "install "); ok && !strings.Contains(command, "-d ") && keyTarget(command) != "" {
				found++
				checkInstalled(t, f, strings.Fields(command))
			}
		}
	}
	if found < 8 {
		t.Errorf("the pages install %d keys", found)
	}
}

// keyTarget returns the key that an install command writes below /etc/headroom, "" when there is none.
func keyTarget(command string) string {
	words := strings.Fields(command)
	to := strings.Trim(words[len(words)-1], "`.")
	if strings.HasSuffix(to, "/") {
		to += path.Base(words[len(words)-2])
	}
	if secret := regexp.MustCompile(`\.(key|keytab|token)$`); !strings.HasPrefix(to, "/etc/headroom/") || !secret.MatchString(to) {
		return ""
	}
	return to
}

func checkInstalled(t *testing.T, page string, words []string) {
	t.Helper()
	option := func(name string) string {
		if i := slices.Index(words, name); i >= 0 && i+1 < len(words) {
			return words[i+1]
		}
		return ""
	}
	to := keyTarget(strings.Join(words, " "))
	group := "headroom-" + path.Base(path.Dir(to))
	if path.Base(to) == "gossip.key" {
		group = "headroom-gossip"
	}
	if option("-m") != "0640" || option("-g") != group {
		t.Errorf("%s: %s has mode %q and group %q, want 0640 and %s", page, to, option("-m"), option("-g"), group)
	}
}
