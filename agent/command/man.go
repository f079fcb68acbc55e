package command

import (
	"headroom/agent"
	"headroom/agent/config"
	"headroom/agent/metrics"
	"headroom/agent/statedir"
	"headroom/internal/cli"
	"headroom/internal/manual"
)

//go:generate go run headroom/cmd/powerd docs ../../docs

// generatedDocs are the pages that follow from the program.
func generatedDocs() manual.Pages {
	return manual.Pages{
		"man/powerd.8":      programPage(),
		"man/powerd.yaml.5": configFile().Page(),
		"metrics.md":        metrics.Page(),
	}
}

// configFile is powerd.yaml as it is documented.
func configFile() manual.File {
	return manual.File{
		Name: "powerd.yaml", Program: "powerd", Version: agent.Version, Example: config.Example, Default: config.Defaults(),
		SeeAlso: []string{"powerd(8)", "headroom(7)"},
	}
}

func programPage() string {
	dir := config.Defaults().StateDir + "/"
	return manual.Program{
		Root: New(), Version: agent.Version, Purpose: "hold a node at its power cap",
		Output: "Tables are plain text; with -o json the answer is one JSON object, and one a line in a watch. JSON carries base units " +
			"with the unit in the key (cap_w, energy_j, freq_hz, remaining_s), and null for what is unknown; a table shows -. " +
			"Fields are only ever added. Requested, written, effective and measured are kept apart: what was asked for, what was " +
			"sent to the hardware, what reads back, what is drawn.\n\nAn error is two lines on stderr, the cause and a hint; with -o json it is one JSON object there.",
		Exit: map[int]string{
			cli.ExitUnreachable: "No powerd or no coordinator answered; nothing was done.",
			cli.ExitConflict:    "Conflict: another powerd runs, or the name belongs to another machine.",
			cli.ExitChanges:     "",
		},
		ExitNote: "powerd measure passes the exit code of the measured command on; powerd check --nagios ends with 0, 1, 2 or 3.",
		Files: []manual.Item{
			{Term: defaultConfig, Text: "Configuration, see powerd.yaml(5)."},
			{Term: dir + statedir.JournalFile, Text: "What each control held before powerd first wrote it."},
			{Term: dir + statedir.MemoryFile, Text: "The highest stamp, the fail-safe cap and the brake that the node has stored."},
			{Term: dir + statedir.HeldFile, Text: "What the node may hold now, for other programs of the host."},
			{Term: agent.SocketPath(config.Defaults().StateDir), Text: "Where the running powerd answers the commands above."},
		},
		SeeAlso: []string{"powerd.yaml(5)", "coordinator(8)", "headroom(7)"},
	}.Page()
}
