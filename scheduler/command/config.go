package command

import (
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/internal/manual"
	"headroom/scheduler"
)

//go:generate go run headroom/cmd/scheduler docs ../../docs

// defaultConfig is where the packages look for the configuration.
const defaultConfig = "/etc/headroom/scheduler.yaml"

func configCommand() *cobra.Command {
	var path string
	return configFile().Group(configCheck(), func(cmd *cobra.Command) { configFlag(cmd, &path) }, func() (any, error) { return scheduler.LoadConfig(path) }, nil)
}

// serviceUser is the user of the packaged service.
const serviceUser = "headroom-scheduler"

const configCheckLong = `Check the configuration as scheduler run does: its syntax and values, and then this machine: every file that it
names can be read by the user of the service, certificate and key belong together and are valid, the addresses are
this machine's, and the scheduler's folder can be written.

Root checks with the rights of the user ` + serviceUser + ` where it exists; --user names another one. Use --syntax-only on a
machine that does not run the scheduler.`

func configCheck() *cobra.Command {
	var (
		path, user string
		syntaxOnly bool
		out        cli.Output
	)
	cmd := &cobra.Command{
		Use:     "check",
		Short:   "Check a configuration and the files that it names",
		Long:    configCheckLong,
		Example: "  scheduler config check --config /etc/headroom/scheduler.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := scheduler.LoadConfig(path)
			if err != nil {
				return err
			}
			checks := cli.Checks{config.Passed("syntax", path)}
			if !syntaxOnly {
				found, err := checkMachine(cfg, path, user)
				if err != nil {
					return err
				}
				checks = append(checks, found...)
			}
			for _, warning := range separation(cfg) {
				checks = append(checks, cli.Check{Name: "users", State: cli.CheckWarn, Text: warning})
			}
			for _, warning := range cfg.Yarn.Notes() {
				checks = append(checks, cli.Check{Name: "yarn", State: cli.CheckWarn, Text: warning})
			}
			if err := checks.Print(cmd.OutOrStdout(), &out); err != nil {
				return err
			}
			return checks.ConfigVerdict()
		},
	}
	configFlag(cmd, &path)
	out.Flags(cmd)
	cmd.Flags().StringVar(&user, "user", "", "user that runs the scheduler, instead of "+serviceUser)
	cmd.Flags().BoolVar(&syntaxOnly, "syntax-only", false, "check only the file, not this machine")
	return cmd
}

// checkMachine runs the checks of the start with the rights of the user that runs the scheduler.
func checkMachine(c *scheduler.Config, path, user string) (checks cli.Checks, err error) {
	account, err := config.ServiceAccount(user, serviceUser)
	if err != nil {
		return nil, err
	}
	err = account.Do(func() { checks = append(cli.Checks{config.CheckFile("file", path)}, c.Preflight(time.Now())...) })
	return checks, err
}

// separation returns warnings about programs of different owners that run as one user. A
// valid configuration alone does not show this.
func separation(c *scheduler.Config) []string {
	var notes []string
	if len(c.TaskUsers) == 0 {
		notes = append(notes, "the tasks of all jobs run as one user and can change each other's files; set task_users, and give the workers --task-user")
	}
	if c.Spark.On() && !c.Spark.Apart() {
		notes = append(notes, "Spark drivers run as the scheduler's user and can read its keys; set driver: [/usr/bin/scheduler, start-driver, /run/headroom-driver.sock]")
	}
	return notes
}

func configFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "config", defaultConfig, "configuration file")
}

// generatedDocs are the pages that follow from the program.
func generatedDocs() manual.Pages {
	page := manual.Program{
		Root: New(), Version: cli.Version, Purpose: "run jobs by priority on power-capped nodes",
		Environment: []manual.Item{
			{Term: addrEnv, Text: "As --addr."},
			{Term: socketEnv, Text: "As --socket."},
			{Term: config.ClientEnv, Text: "The client configuration, instead of those under FILES; empty for none."},
			{Term: "HEADROOM_CA", Text: "As --ca."},
			{Term: "HEADROOM_CERT", Text: "As --cert."},
			{Term: "HEADROOM_KEY", Text: "As --key."},
		},
		Files: []manual.Item{
			{Term: defaultConfig, Text: "Configuration, see scheduler.yaml(5)."},
			{Term: "~/.config/headroom/client.yaml, " + config.ClientFile, Text: "Addresses and certificate for commands: schedulers, coordinators, ca, cert, key, token_file, hooks and hooks_token_file. Flags and the environment win over it."},
			{Term: "/var/lib/headroom/scheduler", Text: "The scheduler's own folder."},
			{Term: "/var/lib/headroom/worker", Text: "A worker's own folder."},
		},
		SeeAlso: []string{"scheduler.yaml(5)", "coordinator(8)", "headroom(7)"},
	}.Page()
	return manual.Pages{"man/scheduler.8": page, "man/scheduler.yaml.5": configFile().Page()}
}

// configFile is scheduler.yaml as it is documented.
func configFile() manual.File {
	return manual.File{
		Name: "scheduler.yaml", Program: "scheduler", Version: cli.Version, Example: scheduler.ExampleConfig, Default: scheduler.Defaults(), SeeAlso: []string{"scheduler(8)", "headroom(7)"},
	}
}
