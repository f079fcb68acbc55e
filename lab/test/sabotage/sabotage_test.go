// Package sabotage checks whether tests would find a mistake: each sabotage is a plausible one
// in production code, against a promise that simulations cannot judge (P6, P7, P10 to P13), and
// names the test that must fail with it and pass without it.
package sabotage

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"headroom/internal/testkit"
)

// sabotage is a mistake in one file, and who finds it.
type sabotage struct {
	name, promise, file string
	old, new            string // BROKEN stands for whether it is chosen
	pkg, test           string
}

func sabotages() []sabotage {
	return []sabotage{
		// P6: leave the machine as found.
		{
			"failed-restore-forgets", "P6", "agent/restore.go", "	if out.Failed == 0 {", "	if out.Failed == 0 || BROKEN {",
			"agent", "TestRestoreThatFailsKeepsTheJournal",
		},
		{
			"journal-not-synced", "P6", "agent/records/records.go", "Name: statedir.JournalFile, Data: data, Durable: true}", "Name: statedir.JournalFile, Data: data, Durable: !BROKEN}",
			"agent/records", "TestControlMetLaterIsSavedFirst",
		},
		{
			"restored-over-another-writer", "P6", "agent/originals/putback.go", "	case !t.ours(c, now) && ", "	case !BROKEN && !t.ours(c, now) && ",
			"agent", "TestAnotherWritersChangeIsNotRestoredOver",
		},
		{
			"adopted-values-are-originals", "P6", "agent/records/records.go", "	if r.Journal != nil {\n		return r.saveMore", "	if r.Journal != nil && !BROKEN {\n		return r.saveMore",
			"agent", "TestAdoptionWritesTheFailSafeCapBeforeAnyNetwork",
		},
		// P7: believe only what reads back.
		{
			"unread-policy-is-left-out", "P7", "dvfs/ceiling.go", "		if !one.Known {\n", "		if !one.Known && !BROKEN {\n",
			"dvfs", "TestUnreadPolicyMakesTheHighestUnknown",
		},
		{
			"written-is-effective", "P7", "lease/node.go", ", known && !n.unread\n", ", known && !n.unread || BROKEN\n",
			"agent", "TestFailedCutStaysUnknown",
		},
		{
			"unknown-power-is-zero", "P7", "agent/metrics/collect.go", `	known(p, nodePower, s.PowerUw, tenths, "best")`, "	if s.PowerUw == nil && BROKEN {\n		s = &headroomv1.GetAgentStatusResponse{PowerUw: new(int64(0))}\n	}\n	known(p, nodePower, s.PowerUw, tenths, \"best\")",
			"agent/metrics", "TestUnknownIsAbsent",
		},
		// P10: degrade in words.
		{
			"one-frequency-is-a-range", "P10", "agent/machine/freq.go", "	if !m.Freq.Config.Travels() {", "	if !BROKEN && !m.Freq.Config.Travels() {",
			"agent", "TestFrequencyWithoutRangeIsNoControl",
		},
		{
			"observer-says-it-controls", "P10", "agent/exchange.go", "Controlled: x.control.mode == holding,", "Controlled: BROKEN || x.control.mode == holding,",
			"agent", "TestObserveOnlyNeverWrites",
		},
		{
			"stand-still-limit-is-a-rung", "P10", "agent/machine/machine.go", "	if len(fixed) == len(m.Packages) {", "	if len(fixed) == len(m.Packages) && !BROKEN {",
			"agent", "TestPackageLimitWithoutTravel",
		},
		// P11: every port authenticates its clients; revoked stays revoked.
		{
			"serials-are-not-denied", "P11", "internal/secure/denied.go", "		if !denied || ", "		if !denied || BROKEN && x.Serial != \"\" || ",
			"internal/secure", "TestDeniedCertificatesAreRefused",
		},
		{
			"everybody-may-change", "P11", "coordinator/access/access.go", "	case !who.Role.May(need) && ", "	case !BROKEN && !who.Role.May(need) && ",
			"coordinator/access", "TestRoles",
		},
		{
			"observers-tokens-survive", "P11", "ledger/access.go", "slices.Contains(keep, x.ID) {", "slices.Contains(keep, x.ID) || x.Role == RoleObserver && BROKEN {",
			"ledger", "TestRestoreDropsTokens",
		},
		{
			"second-denial-is-ignored", "P11", "ledger/access.go", `(x.Serial != "" || x.At <= old.At):`, `(BROKEN || x.Serial != "" || x.At <= old.At):`,
			"ledger", "TestDenials",
		},
		// P12: a job harms no other.
		{
			"moved-task-not-cancelled", "P12", "scheduler/distributor/loop.go", "			g.owe(l.placed[l.names[s.ID]].task.GetRef())\n", "			if !BROKEN {\n				g.owe(l.placed[l.names[s.ID]].task.GetRef())\n			}\n",
			"scheduler/distributor", "TestMovedTasksAreCancelled",
		},
		{
			"resent-counts-as-unsent", "P12", "scheduler/distributor/loop.go", "		p.again = true\n", "		p.again = !BROKEN\n",
			"scheduler/distributor", "TestRefusedAfterItWasSentAgain",
		},
		{
			"younger-master-elected", "P12", "scheduler/distributor/loop.go", "s.state.GetActiveMs() > best.state.GetActiveMs()", "s.state.GetActiveMs() > best.state.GetActiveMs() != BROKEN",
			"scheduler/distributor", "TestLongerActiveMasterIsElected",
		},
		{
			"claimed-slots-are-believed", "P12", "scheduler/slots/book.go", "	case !s.granted && (", "	case !BROKEN && !s.granted && (",
			"scheduler/slots", "TestForgedSlots",
		},
		{
			"one-user-fills-the-hooks", "P12", "scheduler/hookserver/hookserver.go", `who.Name != "" && own`, `!BROKEN && who.Name != "" && own`,
			"scheduler/hookserver", "TestPlacesOfNames",
		},
		{
			"start-before-its-record", "P12", "scheduler/gate.go", "		l.commits.runs <- c // each job has at most one here\n		return true\n", "		l.commits.runs <- c // each job has at most one here\n		return !BROKEN\n",
			"scheduler", "TestNothingBeforeItsRecord",
		},
		{
			"ratio-keys-of-a-job", "P12", "scheduler/commit.go", `fmt.Sprintf("deflate-%s-%d", a.Job, a.Run.Number)`, `fmt.Sprintf("deflate-%s-%d", a.Job, map[bool]uint32{false: a.Run.Number}[BROKEN])`,
			"scheduler", "TestRatiosOfTwoRuns",
		},
		{
			"uncommitted-ratio-in-force", "P12", "scheduler/commit.go", `return 0, "all tasks run: " + plain(err)`, `return map[bool]float64{true: a.Run.Theta}[BROKEN], "all tasks run: " + plain(err)`,
			"scheduler", "TestUncommittedRatioIsNotInForce",
		},
		{
			"inputs-listed-anew", "P12", "scheduler/folders.go", "; missing == nil {\n			r.inputs = known\n", "; missing == nil && !BROKEN {\n			r.inputs = known\n",
			"scheduler", "TestRepeatedSubmissionKeepsItsInputs",
		},
		{
			"list-of-a-task-is-believed", "P12", "scheduler/jobdir/inputs.go", "!bytes.Equal(l.Digest(), digest)", "!BROKEN && !bytes.Equal(l.Digest(), digest)",
			"scheduler/jobdir", "TestListsAreBelievedByDigest",
		},
		{
			"folder-of-another-is-opened", "P12", "scheduler/jobdir/folder.go", "if !before.IsDir() || !ours(before) {", "if !BROKEN && (!before.IsDir() || !ours(before)) {",
			"scheduler/jobdir", "TestFolderReplaced",
		},
		{
			"hanging-folder-keeps-slots", "P12", "scheduler/folders.go", "			l.core.Release(now, id, why)\n", "			if !BROKEN {\n				l.core.Release(now, id, why)\n			}\n",
			"scheduler", "TestSilentFolderReleasesSlots",
		},
		{
			"drops-below-the-floor", "P12", "ledger/run.go", "gone > of || of-gone < LeastTasks(j.Floor, of)", "!BROKEN && (gone > of || of-gone < LeastTasks(j.Floor, of))",
			"ledger", "TestRunJob",
		},
		// P13: a result is never wrong without a report.
		{
			"deadline-below-the-fastest-run", "P13", "jobs/admission/controller.go", "len(j.Earlier) == 0 || most == 0", "BROKEN || len(j.Earlier) == 0 || most == 0",
			"jobs/admission", "TestNoDeadlineBelowTheFastestRun",
		},
		{
			"runs-of-others-count", "P13", "scheduler/ending.go", "admission.Known{User: f.Submitter,", "admission.Known{User: map[bool]string{false: f.Submitter}[BROKEN],",
			"scheduler", "TestDeadlineBelowTheFastestRun",
		},
		{
			"failed-job-met-its-deadline", "P13", "ledger/verdict.go", "case j.State == JobDone && late <= 0:", "case (BROKEN || j.State == JobDone) && late <= 0:",
			"ledger", "TestVerdict",
		},
		{
			"verdict-by-the-commit", "P13", "ledger/verdict.go", "	if j.Course != nil {\n		ended, began", "	if j.Course != nil && !BROKEN {\n		ended, began",
			"ledger", "TestVerdict",
		},
		{
			"stop-of-a-job-without-a-hook", "P13", "coordinator/arbitration/arbiter.go", "	if p.GetWhole() {", "	if !BROKEN && p.GetWhole() {",
			"coordinator/arbitration", "TestJobWithoutAHookIsWhole",
		},
	}
}

// variable names the chosen sabotage to a test that was built with them.
const variable = "HEADROOM_SABOTAGE"

const chooser = "package sabotage\n\nimport \"os\"\n\n// On reports whether a sabotage is chosen.\nfunc On(name string) bool { return os.Getenv(\"" + variable + "\") == name }\n"

// overlay writes the files with every sabotage in them, and the file that go build takes them from.
func overlay(t *testing.T, root, dir string) string {
	t.Helper()
	texts := map[string]string{}
	for _, s := range sabotages() {
		if texts[s.file] == "" {
			texts[s.file] = string(testkit.Need(os.ReadFile(filepath.Join(root, s.file)))(t))
		}
		if n := strings.Count(texts[s.file], s.old); n != 1 {
			t.Fatalf("%s: %q stands %d times in %s", s.name, s.old, n, s.file)
		}
		texts[s.file] = strings.Replace(texts[s.file], s.old, strings.ReplaceAll(s.new, "BROKEN", `sabotage.On("`+s.name+`")`), 1)
	}
	replace := map[string]string{}
	put := func(file, text string) {
		at := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		testkit.WriteFile(t, at, text)
		replace[filepath.Join(root, file)] = at
	}
	for file, text := range texts {
		put(file, strings.Replace(text, "\nimport ", "\nimport \"headroom/internal/sabotage\"\nimport ", 1))
	}
	put("internal/sabotage/sabotage.go", chooser)
	at := filepath.Join(dir, "overlay.json")
	testkit.WriteFile(t, at, string(testkit.Need(json.Marshal(map[string]any{"Replace": replace}))(t)))
	return at
}

// Every promise that the simulation cannot judge has three sabotages at least, and the named
// test finds each.
func TestTestsFindSabotage(t *testing.T) {
	t.Parallel()
	testkit.Slow(t)
	root := testkit.Need(filepath.Abs("../../.."))(t)
	dir := t.TempDir()
	plan := overlay(t, root, dir)
	built, passed, of := map[string]string{}, map[string]bool{}, map[string]int{}
	run := func(s sabotage, chosen string) error {
		cmd := exec.CommandContext(t.Context(), built[s.pkg], "-test.run", "^"+s.test+"$", "-test.v")
		cmd.Dir, cmd.Env = filepath.Join(root, s.pkg), append(os.Environ(), variable+"="+chosen)
		out, err := cmd.CombinedOutput()
		if !strings.Contains(string(out), "=== RUN   "+s.test) {
			t.Fatalf("%s has no %s: %s", s.pkg, s.test, out)
		}
		if err != nil && chosen == "" {
			t.Errorf("%s of %s fails without a sabotage: %s", s.test, s.pkg, out)
		}
		return err
	}
	for _, s := range sabotages() {
		of[s.promise]++
		if built[s.pkg] == "" {
			built[s.pkg] = filepath.Join(dir, strings.ReplaceAll(s.pkg, "/", "_")+".test")
			build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", plan, "-o", built[s.pkg], "./"+s.pkg)
			build.Dir = root
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%s with sabotages: %v: %s", s.pkg, err, out)
			}
		}
		if key := s.pkg + s.test; !passed[key] {
			_ = run(s, "")
			passed[key] = true
		}
		if run(s, s.name) == nil {
			t.Errorf("%s (%s): %s of %s passes all the same", s.name, s.promise, s.test, s.pkg)
		}
	}
	for _, promise := range []string{"P6", "P7", "P10", "P11", "P12", "P13"} {
		if of[promise] < 3 {
			t.Errorf("%s has %d sabotages", promise, of[promise])
		}
	}
}
