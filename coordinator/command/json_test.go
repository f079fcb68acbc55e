// Claim: docs/json.md names every kind of JSON answer and every field of its items,
// so that a field which goes away, or changes its type, is seen in a review.
package command

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"headroom/internal/cli"
)

const jsonHead = `<!-- Generated: UPDATE=1 go test ./coordinator/command -->

# JSON of the coordinator's commands

For people who write scripts. Every command takes ` + "`-o json`" + ` and then prints one object; with ` + "`--watch`" + `, one object in each line. Within ` + "`v1`" + ` fields are
added, never removed and never given another meaning. Ignore unknown fields.

- ` + "`kind`" + ` and ` + "`api`" + ` name the kind of answer and its version; ` + "`items`" + ` is always a list.
- ` + "`revision`, `epoch`, `server`, `as_of`" + ` identify the state that was read, the server and the time; ` + "`consistency`" + ` is ` + "`linearizable`" + `, ` + "`stale`" + ` (one
  server's own log, which may be behind) or ` + "`offline`" + ` (files of a stopped server).
- Names end in their unit: ` + "`_w`" + ` watts, ` + "`_j`" + ` joules, ` + "`_s`" + ` seconds; ratios go from 0 to 1. Times are RFC 3339 in UTC.
- ` + "`null`" + ` means unknown. It is never 0.
- ` + "`highest_w`" + ` is the highest budget ever committed for a domain; a budget above it needs ` + "`--confirm POWER`" + `.
- An error is one JSON object on stderr, with an [exit code](exit-codes.md#errors). Nothing is on stdout then, except where the code is 8 or a check failed.

Types: ` + "`text`, `number`, `yes/no`" + `; ` + "`?`" + ` after a type: may be null; ` + "`[]`" + ` a list, ` + "`{}`" + ` values by name.

`

// contract is each kind, the command that prints it, and an item.
func contract() map[string]struct {
	command string
	item    any
} {
	type row = struct {
		command string
		item    any
	}
	return map[string]row{
		"AlarmList": {"alarm list", alarmListItem{}}, "Brake": {"brake show", brakeItem{}}, "BrakeSet": {"brake set", brakeSetItem{}},
		"BrakeKey": {"brake key create", brakeKeyItem{}}, "BrakeKeyList": {"brake key show", brakeFingerprint{}}, "CertificateList": {"tls inspect", certItem{}}, "ConfigCheck": {"config check; its fields stand beside kind", configJSON{}},
		"GossipKeyList": {"gossip key create, show, add, promote, remove", keyItem{}},
		"BudgetChange":  {"budget set, plan, rollback", budgetItem{}}, "BudgetHistory": {"budget history", historyItem{}}, "BudgetList": {"budget show", domainItem{}},
		"Change":     {"domain set, node set, node drain, policy set, sprint grant and other changes", changeItem{}},
		"DeniedList": {"tls denied", deniedItem{}}, "DomainList": {"domain list", domainItem{}}, "EventList": {"event list", eventItem{}}, "Explanation": {"node explain", explainItem{}},
		"JobExplanation": {"job explain", explainedJob{}},
		"JobList":        {"job list; job show adds running_on and spec", jobDetail{}}, "LeaseList": {"lease list", nodeLeaseItem{}}, "LeaseLength": {"lease show", leaseLengthItem{}},
		"MemberHealth": {"member health", serverItem{}}, "MemberList": {"member list", memberItem{}}, "MemberRecover": {"member recover", nil},
		"MemberTransfer": {"member transfer", nil}, "MeterReport": {"domain report", meterItem{}}, "NodeList": {"node list, node show", nodeItem{}},
		"PolicyList": {"policy list", policyItem{}}, "RaftEntryList": {"debug raft-log", rawEntry{}}, "ScheduleList": {"budget schedule list", scheduleItem{}},
		"Self": {"token self", selfItem{}}, "ServerViewList": {"status --all", serverView{}}, "SnapshotRestore": {"snapshot restore", nil},
		"SnapshotInspect": {"snapshot inspect", snapshotTell{}}, "SnapshotSave": {"snapshot save", fileItem{}},
		"SprintList": {"sprint list; budgets stands beside items", sprintItem{}}, "Status": {"status", statusItem{}},
		"Token": {"token create", tokenItem{}}, "TokenList": {"token list", tokenItem{}},
	}
}

func TestPageTellsEveryKind(t *testing.T) {
	t.Parallel()
	known := contract()
	quoted := regexp.MustCompile(`(?:wrap\(|Kind: +|"kind": |kind :?= |frame\(h, )"([A-Z][A-Za-z]+)"`)
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	used := map[string]bool{}
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		for _, m := range quoted.FindAllStringSubmatch(string(src), -1) {
			used[m[1]] = true
			if _, ok := known[m[1]]; !ok {
				t.Errorf("%s: kind %s is not in the contract", f, m[1])
			}
		}
	}
	page := strings.Builder{}
	page.WriteString(jsonHead)
	for _, kind := range slices.Sorted(func(yield func(string) bool) {
		for k := range known {
			if !yield(k) {
				return
			}
		}
	}) {
		if !used[kind] {
			t.Errorf("kind %s is printed by no command", kind)
		}
		fmt.Fprintf(&page, "## %s\n\n`coordinator` %s\n\n", kind, known[kind].command)
		if known[kind].item == nil {
			page.WriteString("Text for people; scripts read the exit code.\n\n")
			continue
		}
		page.WriteString("| field | type |\n| --- | --- |\n")
		writeFields(&page, "", reflect.TypeOf(known[kind].item))
		page.WriteString("\n")
	}
	path, text := "../../docs/json.md", strings.TrimSuffix(page.String(), "\n")
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if now, err := os.ReadFile(path); err != nil || string(now) != text {
		t.Errorf("docs/json.md differs from the code (%v); UPDATE=1 go test ./coordinator/command writes it", err)
	}
}

// writeFields lists the fields of a struct, those inside others with a dot.
func writeFields(b *strings.Builder, prefix string, t reflect.Type) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			writeFields(b, prefix, f.Type)
			continue
		}
		inner, shape := f.Type, ""
		for {
			switch inner.Kind() { //nolint:exhaustive // what wraps another type
			case reflect.Pointer:
				inner, shape = inner.Elem(), shape+"?"
				continue
			case reflect.Slice:
				if inner.Elem().Kind() != reflect.Uint8 {
					inner, shape = inner.Elem(), "[]"+shape
					continue
				}
			case reflect.Map:
				inner, shape = inner.Elem(), "{}"+shape
				continue
			}
			break
		}
		fmt.Fprintf(b, "| `%s%s` | %s |\n", prefix, name, jsonType(inner)+shape)
		if inner.Kind() == reflect.Struct && (inner.PkgPath() == t.PkgPath() || inner == reflect.TypeFor[cli.Scaling]()) {
			writeFields(b, prefix+name+".", inner)
		}
	}
}

func jsonType(t reflect.Type) string {
	switch t.Kind() { //nolint:exhaustive // the rest are numbers
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "yes/no"
	case reflect.Struct, reflect.Interface, reflect.Slice:
		return "object"
	}
	return "number"
}
