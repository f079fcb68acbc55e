package command

import (
	"os"
	"path/filepath"

	"headroom/coordinator"
	"headroom/internal/manual"
)

//go:generate go run headroom/cmd/coordinator docs ../../docs

// generatedDocs are the pages that follow from the program, and headroom(7), whose
// words are those of the glossary in the folder docs.
func generatedDocs(docs string) (manual.Pages, error) {
	words, err := os.ReadFile(filepath.Join(docs, "glossary.md"))
	if err != nil {
		return nil, err
	}
	headroom, err := concepts(string(words)).Page()
	if err != nil {
		return nil, err
	}
	return manual.Pages{
		"man/coordinator.8":      programPage(),
		"man/coordinator.yaml.5": configFile().Page(),
		"man/headroom.7":         headroom,
	}, nil
}

// configFile is coordinator.yaml as it is documented.
func configFile() manual.File {
	return manual.File{
		Name: "coordinator.yaml", Program: "coordinator", Version: coordinator.Version, Example: coordinator.ExampleConfig, Default: coordinator.Defaults(),
		Notes: "The file is one server's own. What the group decides together, budgets, policies and the power tree, is in its replicated log " +
			"and is changed by commands; servers and site are what an empty group begins with. Certificates and keys are read again when they " +
			"change; everything else needs a restart.",
		SeeAlso: []string{"coordinator(8)", "headroom(7)"},
	}
}

func programPage() string {
	dir := filepath.Dir(defaultSocket) + "/"
	return manual.Program{
		Root: New(), Version: coordinator.Version, Purpose: "hold a cluster inside its power budget",
		Output: "Tables are plain text; with -o json the answer is one JSON object, and one a line in a watch. JSON carries base units " +
			"with the unit in the key (cap_w, energy_j, lease_s), and null for what is unknown; a table shows -. Fields are only ever added. " +
			"A list stands in a frame: kind, api, revision, as_of, consistency, server, epoch, items.\n\n" +
			"Reads are linearizable: the leader proves that it leads before it answers. With --stale the addressed server answers from what it " +
			"has, and says so; it may be behind.\n\n" +
			"An error is two lines on stderr, the cause and a hint; with -o json it is one JSON object there.",
		ExitNote: "coordinator check --nagios ends with 0, 1, 2 or 3.",
		Environment: []manual.Item{
			{Term: "HEADROOM_ADDR", Text: "As --addr."},
			{Term: "HEADROOM_CA, HEADROOM_CERT, HEADROOM_KEY", Text: "As --ca, --cert and --key."},
			{Term: "HEADROOM_TOKEN_FILE", Text: "As --token-file."},
		},
		Files: []manual.Item{
			{Term: defaultConfig, Text: "Configuration of the server, see coordinator.yaml(5)."},
			{Term: "/etc/headroom/gossip.key", Text: "The keys of the gossip, shared by servers and nodes."},
			{Term: "/etc/headroom/brake.pub, /etc/headroom/brake.key", Text: "The pair of keys of the brake: the public one on servers and nodes, the private one on servers only."},
			{Term: dir, Text: "The replicated log, the vote and the snapshots; nobody else may touch it while the server runs."},
			{Term: defaultSocket, Text: "Where the server of this machine answers root and its own user without a certificate."},
			{Term: dir + "debug", Text: "What the flight recorder wrote about ticks that came too late."},
		},
		SeeAlso: []string{"coordinator.yaml(5)", "headroom(7)", "powerd(8)", "scheduler(8)"},
	}.Page()
}

// concepts are what stands in headroom(7) beside the words of the glossary.
func concepts(glossary string) manual.Concepts {
	return manual.Concepts{
		Version: coordinator.Version, Glossary: glossary,
		Sections: []manual.Item{
			{Term: "DESCRIPTION", Text: "Headroom keeps a cluster of servers under its power budget, and spends the watts that are left on the jobs that matter. " +
				"A group of one, three or five coordinators holds the budget in a replicated log; powerd on each node holds that node at the cap that " +
				"its lease grants; scheduler runs jobs by priority on nodes whose power is capped.\n\n" +
				"An operator sets the budget of a domain, a place in the power tree: a site, a feeder, a rack, a node. Once a second the leader divides " +
				"it among the nodes by their demand and weight, commits the caps, and only then tells them."},
			{Term: "WHAT IS PROMISED", Text: "Never over budget: what nodes may hold is committed before they can hold it, and a raise is committed only after the lowers that pay " +
				"for it have been read back from hardware.\n\n" +
				"A cap is a lease: it ends by itself. A node that hears nothing for the length of a lease falls to its fail-safe cap, alone.\n\n" +
				"Cuts win: a cut goes to every reachable node at once, waits for nobody, and says what it could not lower.\n\n" +
				"Lost is not off: a lost node stays charged at what it may hold until there is evidence that it does not.\n\n" +
				"The machine is left as found: every control is saved on disk before it is first written, and put back after a release.\n\n" +
				"Only what reads back is believed: requested, written, effective and measured watts are kept apart wherever they are shown. " +
				"What is unknown is shown as such, never as 0."},
			{Term: "UNITS", Text: "Watts are watts at the wall. A quantity on a command line or in a file needs its unit: 85W, 1.2kW, 12kJ, 2400MHz, 250ms. Bare numbers are refused."},
			{Term: "EXIT STATUS", Text: exitStatus()},
		},
		SeeAlso: []string{"coordinator(8)", "coordinator.yaml(5)", "powerd(8)", "powerd.yaml(5)", "scheduler(8)", "scheduler.yaml(5)"},
	}
}

func exitStatus() string {
	return "All programs end with the same codes: 0 done; 1 failed; 2 wrong command line or configuration, nothing was done; 3 no server or no leader, " +
		"nothing was done; 4 not allowed; 5 conflict; 6 refused by a safety rule; 7 outcome unknown, repeat with the same --request-id; " +
		"8 done but not everything confirmed; 10 a plan would change something; 130 interrupted."
}
