package main

// noun is a command that headroom passes on.
type noun struct{ name, program, short string }

// programs are the programs of Headroom, in the order in which a noun that several
// have is given to one, and the package that has each.
func programs() []noun {
	return []noun{
		{"coordinator", "headroom-coordinator", "Run a server of the cluster, or any command of coordinator"},
		{"scheduler", "headroom-coordinator", "Run the job scheduler, or any command of scheduler"},
		{"powerd", "headroom-powerd", "Run the agent of a node, or any command of powerd"},
		{"powerlab", "headroom-tools", "Run any command of powerlab"},
	}
}

// nouns are the commands that need no name of a program. job is the scheduler's;
// its verbs that only coordinator has are listed by jobVerbs. Of the other nouns
// that several programs have, coordinator's is meant. run, config, debug, version
// and completion need the program's name: each program has its own.
func nouns() []noun {
	return []noun{
		{"alarm", "coordinator", "List and acknowledge alarms"},
		{"brake", "coordinator", "Set every node to its fail-safe cap, or lift the brake"},
		{"budget", "coordinator", "Show and change power budgets"},
		{"check", "coordinator", "Check the cluster, for monitoring"},
		{"domain", "coordinator", "Show and change the power tree"},
		{"event", "coordinator", "Show the audit log"},
		{"gossip", "coordinator", "Create and change the gossip key"},
		{"lease", "coordinator", "List leases"},
		{"member", "coordinator", "Show and change the servers of the cluster"},
		{"node", "coordinator", "Show and change nodes"},
		{"policy", "coordinator", "Show and choose how power and containers are divided"},
		{"snapshot", "coordinator", "Save, inspect and restore the committed state"},
		{"sprint", "coordinator", "Grant, list and cancel sprints"},
		{"status", "coordinator", "Show the state of the cluster"},
		{"tls", "coordinator", "Create, inspect and deny certificates"},
		{"token", "coordinator", "Create, list and revoke tokens"},

		{"job", "scheduler", "Submit, list, show, watch, explain and cancel jobs"},
		{"submit", "scheduler", "Submit a job"},
		{"drain", "scheduler", "Finish running jobs and start no new ones"},
		{"hook", "scheduler", "Create tokens for the hooks inside Hadoop"},
		{"worker", "scheduler", "Run tasks on this node"},
		{"master", "scheduler", "Dispatch the tasks of one group to its workers"},
		{"profile", "scheduler", "Measure a job's result when it runs only part of its map tasks"},
		{"scale", "scheduler", "Determine how far jobs should scale out"},

		{"freq", "powerd", "Show and limit processor frequencies of this node"},
		{"limit", "powerd", "Show, set and restore limits of this node"},
		{"measure", "powerd", "Measure the energy of a command or an interval"},
		{"record", "powerd", "Write a time series of power to a file or stdout"},
		{"sensor", "powerd", "Show the power and temperature sensors of this node"},
		{"top", "powerd", "Show this node full-screen"},
		{"zone", "powerd", "Show the RAPL zones of this node"},

		{"bench", "powerlab", "Run the benchmarks"},
		{"demo", "powerlab", "Run the demo"},
		{"paper", "powerlab", "Repeat the papers' experiments"},
		{"simulate", "powerlab", "Simulate clusters under faults"},
	}
}

// jobVerbs are the verbs of job that only coordinator has.
func jobVerbs() []string { return []string{"explain"} }
