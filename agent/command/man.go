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

// generatedDocs returns the pages generated from the program.
func generatedDocs() manual.Pages {
	return manual.Pages{
		"man/powerd.8":      programPage(),
		"man/powerd.yaml.5": configFile().Page(),
		"metrics.md":        metrics.Page(),
	}
}

// configFile describes powerd.yaml.
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
		Output: "Tables are plain text. With -o json the output is one JSON object, or one object per line with --watch. JSON values are in base " +
			"units with the unit in the key (cap_w, energy_j, freq_hz, remaining_s). An unknown value is null in JSON and - in a table. " +
			"Fields are only added. Four values are separate everywhere: requested (by the plan), written (to the hardware), effective " +
			"(read back) and measured power.\n\nAn error is two lines on stderr, the cause and a hint; with -o json it is one JSON object on stderr.",
		Exit: map[int]string{
			cli.ExitUnreachable: "No powerd or no coordinator answered; nothing was changed.",
			cli.ExitConflict:    "Conflict: another powerd is running, or the node name belongs to another machine.",
			cli.ExitChanges:     "",
		},
		ExitNote: "powerd measure returns the exit code of the measured command; powerd check --nagios returns 0, 1, 2 or 3.",
		Files: []manual.Item{
			{Term: defaultConfig, Text: "Configuration, see powerd.yaml(5)."},
			{Term: dir + statedir.JournalFile, Text: "The value of each control before powerd first wrote it."},
			{Term: dir + statedir.MemoryFile, Text: "The highest stamp, the fail-safe cap and the brake."},
			{Term: dir + statedir.HeldFile, Text: "The cap and limits in force, for other programs of the host."},
			{Term: agent.SocketPath(config.Defaults().StateDir), Text: "Socket of the running powerd."},
		},
		SeeAlso: []string{"powerd.yaml(5)", "coordinator(8)", "headroom(7)"},
	}.Page()
}
