package command

// Claims: a deadline and a quality reach each engine as the properties that it reads, beside what the command sets itself; the
// command's job is followed to its end, and the exit code is that of its promise.

import (
	"archive/zip"
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/testkit"
)

// jarOf writes a jar whose manifest names a main class; empty for a jar without one.
func jarOf(t *testing.T, path, main string) {
	t.Helper()
	var data bytes.Buffer
	z := zip.NewWriter(&data)
	f := testkit.Need(z.Create("META-INF/MANIFEST.MF"))(t)
	text := "Manifest-Version: 1.0\r\n"
	if main != "" {
		text += "Main-Class: " + main + "\r\n"
	}
	_ = testkit.Need(f.Write([]byte(text)))(t)
	testkit.Check(t, z.Close())
	testkit.WriteFile(t, path, data.String())
}

// runHere runs a command of this program as a process, in a folder with its client configuration and the programs of bin first on
// PATH.
func runHere(t *testing.T, dir string, args ...string) (stdout, stderr string, exit int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), programEnv+"=1", "HEADROOM_CLIENT=client.yaml", "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // the exit code tells
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func TestRunAddsTheProperties(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testkit.WriteFile(t, filepath.Join(dir, "client.yaml"), "hooks: https://s1:7411\nca: /ca.crt\nhooks_token_file: user.json\n")
	testkit.WriteFile(t, filepath.Join(dir, "user.json"), `{"headroom.user-token":"x"}`)
	jarOf(t, filepath.Join(dir, "plain.jar"), "")
	jarOf(t, filepath.Join(dir, "apps.jar"), "headroom.apps.Main")
	jarOf(t, filepath.Join(dir, "one.jar"), "org.example.Words")
	token := filepath.Join(dir, "user.json")
	mapReduce := "-D headroom.url=https://s1:7411 -D headroom.ca=/ca.crt -D mapreduce.job.credentials.json=" + token +
		" -D yarn.app.mapreduce.am.job.speculator.class=headroom.hadoop.EarlyStopSpeculator -D mapreduce.map.speculative=true" +
		" -D headroom.deadline=10m -D headroom.quality=90%% -D headroom.class=low%s -libjars /usr/share/java/headroom-hadoop.jar"
	tags := " -D mapreduce.job.tags=headroom-deadline:10m"
	for args, want := range map[string]string{
		"spark-submit --jars a.jar --conf spark.yarn.tags=mine words.py --jars x": "spark-submit --conf spark.shuffle.manager=headroom.spark.HeadroomShuffleManager" +
			" --conf spark.plugins=headroom.spark.HeadroomPlugin --conf spark.headroom.url=https://s1:7411 --conf spark.headroom.ca=/ca.crt --conf spark.headroom.token-file=" + token +
			" --conf spark.headroom.deadline=10m --conf spark.headroom.quality=90% --conf spark.headroom.class=low --conf spark.headroom.refuse=true --jars a.jar,/usr/share/java/headroom-spark.jar" +
			" --conf spark.yarn.tags=mine,headroom-deadline:10m words.py --jars x",
		"hadoop jar plain.jar Words IN OUT":                              "hadoop jar plain.jar Words " + fmt.Sprintf(mapReduce, tags) + " IN OUT",
		"yarn jar apps.jar wordcount in out":                             "yarn jar apps.jar wordcount " + fmt.Sprintf(mapReduce, tags) + " in out",
		"hadoop jar one.jar in out":                                      "hadoop jar one.jar " + fmt.Sprintf(mapReduce, tags) + " in out",
		"hadoop jar one.jar in {headroom} out":                           "hadoop jar one.jar in " + fmt.Sprintf(mapReduce, tags) + " out",
		"hadoop jar plain.jar Words -Dmapreduce.job.tags=a,b -Dx=y IN O": "hadoop jar plain.jar Words " + fmt.Sprintf(mapReduce, "") + " -Dmapreduce.job.tags=a,b,headroom-deadline:10m -Dx=y IN O",
	} {
		out, errs, exit := runHere(t, dir, append([]string{"job", "run", "--dry-run", "--deadline", "10m", "--quality", "90%", "--class", "low", "--"}, strings.Fields(args)...)...)
		if exit != cli.ExitOK || out != want+"\n" {
			t.Errorf("%s: exit %d, %s\n%s\nwant %s", args, exit, errs, out, want)
		}
	}
	for args, want := range map[string]string{
		"--deadline 10 -- spark-submit a.py":  "--deadline ",
		"--deadline 0s -- spark-submit a.py":  "must be above 0",
		"--quality 130% -- spark-submit a.py": `--quality "130%": `,
		"--error 100% -- spark-submit a.py":   `--error "100%": `,
		"--min-tasks 0 -- spark-submit a.py":  `--min-tasks "0": `,
		"--deadline 10m -- python a.py":       `"python a.py" is not a command that carries a deadline`,
		"--deadline 10m -- hadoop fs -ls":     `"hadoop fs" is not a command`,
		"--deadline 10m":                      "requires at least 1 arg",
	} {
		_, errs, exit := runHere(t, dir, append([]string{"job", "run"}, strings.Fields(args)...)...)
		if exit != cli.ExitUsage || !strings.Contains(errs, want) || !strings.Contains(errs, "\nhint: ") {
			t.Errorf("%s: exit %d, %s", args, exit, errs)
		}
	}
	testkit.WriteFile(t, filepath.Join(dir, "client.yaml"), "ca: /ca.crt\n")
	if _, errs, exit := runHere(t, dir, "job", "run", "--deadline", "10m", "--", "spark-submit", "a.py"); exit != cli.ExitUsage || !strings.Contains(errs, "hint: set hooks in ") {
		t.Errorf("without an address: exit %d, %s", exit, errs)
	}
}

func TestRunEndsByThePromise(t *testing.T) {
	t.Parallel()
	var looks atomic.Int32
	state := headroomv1.JobState_JOB_STATE_DONE
	verdict := &headroomv1.JobEnd{Verdict: "met"}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		j := &headroomv1.Job{
			Id: hadoopsJob, State: headroomv1.JobState_JOB_STATE_RUNNING, DeadlineS: new(600.0),
			Outlook: &headroomv1.JobOutlook{Move: &headroomv1.JobMove{Kind: headroomv1.MoveKind_MOVE_KIND_SPRINT, Reason: "it would be late"}},
		}
		if looks.Add(1) > 2 {
			j.State, j.End, j.Outlook = state, verdict, nil
		}
		w.Header().Set("Content-Type", "application/proto")
		_, _ = w.Write(testkit.Need(proto.Marshal(&headroomv1.ListResponse{Jobs: []*headroomv1.Job{j}}))(t))
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	defer server.Close()
	dir := t.TempDir()
	testkit.WriteFile(t, filepath.Join(dir, "client.yaml"), "hooks: http://s1:7411\nschedulers: ["+strings.TrimPrefix(server.URL, "http://")+"]\n")
	submit := filepath.Join(dir, "bin", "spark-submit")
	says := func(text string) {
		testkit.WriteFile(t, submit, "#!/bin/sh\n"+text+"\n")
		testkit.Check(t, os.Chmod(submit, 0o755))
	}
	run := func(args ...string) (string, string, int) {
		looks.Store(0)
		return runHere(t, dir, append(append([]string{"job", "run"}, args...), "--", "spark-submit", "a.py")...)
	}
	says("echo a result; echo Submitted application " + hadoopsJob + " >&2")
	out, errs, exit := run("--deadline", "10m")
	if exit != cli.ExitOK || out != "a result\njob "+hadoopsJob+" done; deadline met\n" || !strings.Contains(errs, "decided sprint: it would be late\n") {
		t.Errorf("kept: exit %d, %q, %q", exit, out, errs)
	}
	verdict = &headroomv1.JobEnd{Verdict: "missed", LateS: new(12.5), Why: "the cap cost about 20 s"}
	out, errs, exit = run("--deadline", "10m", "-o", "json")
	if exit != cli.ExitDegraded || !strings.HasPrefix(out, "{") || strings.Contains(out, "a result") || !strings.Contains(errs, `"code":"deadline-missed"`) {
		t.Errorf("missed: exit %d, %q, %q", exit, out, errs)
	}
	state = headroomv1.JobState_JOB_STATE_FAILED
	says("echo Submitted application " + hadoopsJob + " >&2; exit 3")
	if out, errs, exit = run(); exit != cli.ExitFailed || !strings.Contains(errs, "error: job "+hadoopsJob+" failed: ") {
		t.Errorf("failed: exit %d, %q, %q", exit, out, errs)
	}
	says("exit 3") // the scheduler never hears of it
	if out, errs, exit = run("--deadline", "10m"); exit != cli.ExitFailed || !strings.Contains(errs, "the scheduler lists no job") || !strings.Contains(errs, "error: the command failed: exit status 3") {
		t.Errorf("unlisted: exit %d, %q, %q", exit, out, errs)
	}
	says("sleep 0.2")
	if out, errs, exit = run("--deadline", "100ms"); exit != cli.ExitDegraded || !strings.Contains(errs, "missed its deadline by") {
		t.Errorf("unlisted and late: exit %d, %q, %q", exit, out, errs)
	}
}
