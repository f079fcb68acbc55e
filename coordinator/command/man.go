package command

import (
	"os"
	"path/filepath"

	"headroom/coordinator"
	"headroom/internal/config"
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
		Notes: "The file belongs to one server. Budgets, policies and the power tree are in the replicated log of the cluster and are changed by " +
			"commands; servers and site initialize an empty cluster. Certificates and keys are reloaded when the files change; everything else " +
			"needs a restart.",
		SeeAlso: []string{"coordinator(8)", "headroom(7)"},
	}
}

func programPage() string {
	dir := filepath.Dir(defaultSocket) + "/"
	return manual.Program{
		Root: New(), Version: coordinator.Version, Purpose: "keep a cluster within its power budget",
		Output: "Tables are plain text. With -o json the output is one JSON object, or one per line with --watch. JSON uses base units with the unit " +
			"in the key (cap_w, energy_j, lease_s), and null for unknown values; a table shows -. Fields are only ever added. " +
			"A list has an envelope: kind, api, revision, as_of, consistency, server, epoch, items.\n\n" +
			"Reads are linearizable: the leader verifies its leadership before it answers. With --stale the addressed server answers from its own " +
			"state, which may be stale, and prints its age.\n\n" +
			"An error is two lines on stderr, the cause and a hint; with -o json it is one JSON object there.",
		ExitNote: "coordinator check --nagios exits with 0, 1, 2 or 3.",
		Environment: []manual.Item{
			{Term: "HEADROOM_ADDR", Text: "As --addr."},
			{Term: config.ClientEnv, Text: "The client configuration, instead of those under FILES; empty for none."},
			{Term: "HEADROOM_CA, HEADROOM_CERT, HEADROOM_KEY", Text: "As --ca, --cert and --key."},
			{Term: "HEADROOM_TOKEN_FILE", Text: "As --token-file."},
		},
		Files: []manual.Item{
			{Term: defaultConfig, Text: "Configuration of the server, see coordinator.yaml(5)."},
			{Term: "~/.config/headroom/client.yaml, " + config.ClientFile, Text: "Addresses and certificate for commands: coordinators, ca, cert, key and token_file. Flags and the environment win over it. With coordinators in it, the socket is used only with --socket."},
			{Term: "/etc/headroom/gossip.key", Text: "Gossip keys, shared by servers and nodes."},
			{Term: "/etc/headroom/brake.pub, /etc/headroom/coordinator/brake.key", Text: "Key pair of the brake: the public key on servers and nodes, the private key on servers only."},
			{Term: dir, Text: "Replicated log, vote and snapshots; must not be changed while the server runs."},
			{Term: defaultSocket, Text: "Unix socket of this machine's server; root and the server's user need no certificate."},
			{Term: dir + "debug", Text: "Traces of late ticks, written by the flight recorder."},
		},
		SeeAlso: []string{"coordinator.yaml(5)", "headroom(7)", "powerd(8)", "scheduler(8)"},
	}.Page()
}

// concepts returns headroom(7), which includes the glossary.
func concepts(glossary string) manual.Concepts {
	return manual.Concepts{
		Version: coordinator.Version, Glossary: glossary,
		Sections: []manual.Item{
			{Term: "DESCRIPTION", Text: "Headroom keeps a cluster of servers under its power budget and gives the remaining watts to the jobs that matter most. " +
				"One, three or five coordinators hold the budget in a replicated log; powerd on each node enforces the cap that its lease " +
				"grants; scheduler runs jobs by priority on power-capped nodes.\n\n" +
				"An operator sets the budget of a domain in the power tree: a site, a feeder, a rack or a node. Once a second the leader divides " +
				"the budget among the nodes by their demand and weight, commits the caps, and then sends them to the nodes."},
			{Term: "GUARANTEES", Text: "Never over budget: a cap is committed before a node can hold it, and a raise is committed only after the cuts that pay for it have " +
				"been read back from hardware.\n\n" +
				"A cap is a lease: it expires. A node that receives nothing for the length of a lease falls to its fail-safe cap by itself.\n\n" +
				"Cuts come first: a cut goes to every reachable node at once, waits for none, and names the nodes that it could not lower.\n\n" +
				"Lost is not off: a lost node keeps its charge until its power is known.\n\n" +
				"The machine is left as found: every control is saved on disk before its first write, and restored after a release.\n\n" +
				"Only what is read back counts: requested, written, effective and measured watts are shown separately. " +
				"Unknown values are shown as unknown, never as 0."},
			{Term: "UNITS", Text: "Watts are measured at the wall. A quantity on a command line or in a file needs a unit: 85W, 1.2kW, 12kJ, 2400MHz, 250ms. Bare numbers are refused."},
			{Term: "EXIT STATUS", Text: exitStatus()},
		},
		SeeAlso: []string{"coordinator(8)", "coordinator.yaml(5)", "powerd(8)", "powerd.yaml(5)", "scheduler(8)", "scheduler.yaml(5)"},
	}
}

func exitStatus() string {
	return "All programs use the same exit codes: 0 done; 1 failed; 2 usage or configuration error, nothing was done; 3 no server or no leader " +
		"reachable, nothing was done; 4 not authenticated or not allowed; 5 conflict; 6 refused by a safety rule; 7 outcome unknown, retry with " +
		"the same --request-id; 8 done but not everything confirmed; 10 there would be changes; 130 interrupted."
}
