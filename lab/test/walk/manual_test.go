package walk

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// cluster is what the examples of the manual pages are tried on: one development server with an emulated node for each
// name that they use, a scheduler, and the files that they read. The pages do not describe how to get it.
const cluster = `
mkdir -p /etc/headroom/scheduler
coordinator config example >/etc/headroom/coordinator.yaml
coordinator run --dev --budget 4kW --state-dir /var/lib/headroom/coordinator &
until [ -S /var/lib/headroom/coordinator/coordinator.sock ]; do sleep 0.1; done
for n in n01 n02 n03 n04 n07 n16; do
	powerlab node $n --dir . --nodes 6 --no-worker --join 127.0.0.1:7402 --key-file /var/lib/headroom/coordinator/gossip.key --brake-key-file /var/lib/headroom/coordinator/brake.pub >$n.log 2>&1 &
done
coordinator tls ca create --name lab
coordinator tls cert create server/c1 master/m1 worker/n03
mkdir -p /etc/headroom/{coordinator,master,worker}
mv c1.crt /etc/headroom/coordinator/server.crt
mv c1.key /etc/headroom/coordinator/server.key
mv m1.crt m1.key /etc/headroom/master
mv n03.crt n03.key /etc/headroom/worker
cp ca.crt /etc/headroom
cp /var/lib/headroom/coordinator/gossip.key /etc/headroom
sed -e 's/^dev: false/dev: true/' -e '/^tls:/,/^dev:/{/^dev/!d}' -e 's|hooks_key_file: ""|hooks_key_file: /etc/headroom/scheduler/hooks.key|' <(scheduler config example) >/etc/headroom/scheduler.yaml
head -c 32 /dev/urandom | base64 | install -m 0640 /dev/stdin /etc/headroom/scheduler/hooks.key
scheduler run --config /etc/headroom/scheduler.yaml &
until [ "$(coordinator node list -o name 2>/dev/null | wc -l)" = 6 ]; do sleep 0.2; done
cp n02/powerd.yaml /etc/headroom/powerd.yaml
if id headroom-coordinator >/dev/null 2>&1; then # root checks a configuration with the rights of the service
	chown -R headroom-coordinator /etc/headroom/coordinator /etc/headroom/gossip.key /var/lib/headroom/coordinator
	chown -R headroom-scheduler /var/lib/headroom/scheduler
fi
coordinator domain set rack/r2 --parent site/dev --budget 1kW --yes
coordinator sprint budget 6kJ --refill 20W --yes
coordinator snapshot save today.snap
for n in 0 1 2 3; do printf 'the\t3\nsame\t2\nwords\t1\n' >text-$n; done
cat >words.yaml <<END
name: words
class: low
slots: 2
map: {input: "$PWD/text-*", command: [cat, "{input}"]}
reduce: {command: [powerlab, app, merge]}
output: "$PWD/out"
END
sed 's/^name: words/name: top/' words.yaml >top.yaml
echo '{"model": "ipso", "points": [{"n": 10, "speedup": 7.471}, {"n": 30, "speedup": 16.521}, {"n": 60, "speedup": 20.107}, {"n": 90, "speedup": 18.765}]}' >points.json
printf '#!/bin/sh\nexit 0\n' >job.sh
chmod +x job.sh
`

// Some examples name what a cluster of one server, in which nothing has gone wrong, does not have. They are understood,
// and refused for one of these reasons.
func refusals() map[string]*regexp.Regexp {
	return map[string]*regexp.Regexp{
		"names something that this cluster does not have": regexp.MustCompile(`unknown (job|server|domain|token|sprint|node)|no such (job|alarm|server)|the address at which jobs reach the scheduler is unknown|jar jobs\.jar: |no job|the history (does not|has no)|nobody to hand|generation 12|every domain must be named`),
		"names a node that is alive":                      regexp.MustCompile(`may be alive`),
		"needs a node below what it is rated":             regexp.MustCompile(`share of the sprint budget|its (rated )?cap|already equals its rated power|nothing to spend`),
		"asks another server":                             regexp.MustCompile(`10\.0\.\d+\.\d+`),
		"needs the service stopped":                       regexp.MustCompile(`another (process|powerd|scheduler)|in use`),
	}
}

// refusedMost bounds the examples that are refused.
const refusedMost = 45

func TestManual(t *testing.T) {
	t.Parallel()
	n := start(t, "", []string{workstation})
	if made := n.run(t, workstation, cluster, true, time.Minute); !made.ended || len(made.failures) > 0 {
		t.Fatalf("the cluster: %v\n%s", made.failures, made.output)
	}
	var steps []step
	for _, page := range []string{"docs/man/coordinator.8", "docs/man/powerd.8", "docs/man/scheduler.8"} {
		steps = append(steps, examples(t, page)...)
	}
	slices.SortStableFunc(steps, func(a, b step) int { return turn(a) - turn(b) })
	for _, program := range []string{"coordinator", "powerd", "scheduler"} {
		var text strings.Builder
		for _, s := range examples(t, "docs/man/"+program+".yaml.5") {
			text.WriteString(s.text)
		}
		check := "cat >" + program + ".yaml <<'END'\n" + text.String() + "END\n" + program + " config check --syntax-only --config " + program + ".yaml"
		if result := n.run(t, workstation, check, false, time.Minute); !result.ended || len(result.failures) > 0 || text.Len() == 0 {
			t.Errorf("the example of %s.yaml(5): %s", program, result.output)
		}
	}
	refused := 0
	for _, s := range steps {
		if !n.try(t, s) {
			refused++
		}
	}
	t.Logf("%d of %d examples refused", refused, len(steps))
	if refused > refusedMost {
		t.Errorf("%d examples are refused, at most %d", refused, refusedMost)
	}
}

// turn is the order of the examples: what makes a file comes before what reads it, and what takes a node out comes last.
func turn(s step) int {
	switch {
	case regexp.MustCompile(` (create|example|schema|save)\b`).MatchString(s.text):
		return 0
	case regexp.MustCompile(` (release|restore|remove|drain|recover)\b`).MatchString(s.text):
		return 2
	default:
		return 1
	}
}

// try runs an example and reports whether it was carried out. Those that go on until they are stopped are stopped after
// a second. Those that require confirmation, as on a terminal, are confirmed.
func (n *network) try(t *testing.T, s step) (done bool) {
	t.Helper()
	stream := regexp.MustCompile(` (run|watch|top|master|worker)( |$)|submit .* --wait| --watch| --for (1m|10s|60s)( |$)`)
	command, most := strings.TrimSpace(s.text), "12"
	if stream.MatchString(command) {
		most = "1"
	}
	began := time.Now()
	bounded := func(command string) outcome {
		return n.run(t, workstation, fmt.Sprintf("timeout -s INT %s bash -c %s", most, quoted(command)), false, 30*time.Second)
	}
	result := bounded(command)
	if strings.Contains(result.output, "hint: use --yes") {
		result = bounded(command + " --yes")
	}
	if strings.Contains(command, "brake set") {
		n.run(t, workstation, "coordinator brake lift --yes", false, 30*time.Second)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Logf("%s:%d: %s took %v", s.page, s.line, command, took.Round(time.Second))
	}
	if !result.ended {
		t.Fatalf("%s:%d: did not end: %s\n%s", s.page, s.line, command, result.output)
	}
	if len(result.failures) == 0 {
		return true
	}
	const stopped, degraded = 124, 8
	code := result.failures[0].code
	if code == degraded || code == stopped && most == "1" {
		return true
	}
	for why, said := range refusals() {
		if said.MatchString(result.output) {
			t.Logf("%s:%d: %s %s", s.page, s.line, command, why)
			return false
		}
	}
	t.Errorf("%s:%d: exit code %d: %s\n%s", s.page, s.line, code, command, result.output)
	return true
}

// quoted is a word of the shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
