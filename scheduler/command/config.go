package command

import (
	"fmt"
	"slices"

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
	root := &cobra.Command{Use: "config", Short: "Check scheduler.yaml or print an example", Example: "  scheduler config example > scheduler.yaml"}
	root.AddCommand(configCheck(), configShow(), configSchema(), &cobra.Command{
		Use:     "example",
		Short:   "Print scheduler.yaml with every key explained",
		Example: "  scheduler config example > scheduler.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), scheduler.ExampleConfig)
			return err
		},
	})
	return root
}

func configCheck() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:     "check",
		Short:   "Check scheduler.yaml without starting anything",
		Example: "  scheduler config check --config /etc/headroom/scheduler.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := scheduler.LoadConfig(path)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "ok    %s\n", path); err != nil {
				return err
			}
			for _, note := range separation(cfg) {
				if _, err := fmt.Fprintf(cmd.OutOrStdout(), "note  %s\n", note); err != nil {
					return err
				}
			}
			return nil
		},
	}
	configFlag(cmd, &path)
	return cmd
}

// separation says which programs of other people share a user, which a configuration that
// is right does not show.
func separation(c *scheduler.Config) []string {
	notes := []string{"one user runs the tasks of all jobs on a node, and jobs can change each other's files, unless its worker has --task-user"}
	if c.Spark.On() && !slices.Contains(c.Spark.Driver, "start-driver") {
		notes = append(notes, "drivers of Spark run as the scheduler's user and can read its keys; driver: [/usr/bin/scheduler, start-driver, /run/headroom-driver.sock] runs them as headroom-driver")
	}
	return notes
}

func configShow() *cobra.Command {
	var path string
	var out cli.Output
	cmd := &cobra.Command{
		Use:     "show",
		Short:   "Print the configuration in force, with the defaults of keys that the file does not have",
		Example: "  scheduler config show --config scheduler.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := scheduler.LoadConfig(path)
			if err != nil {
				return err
			}
			return config.Show(cmd.OutOrStdout(), c, out.IsJSON())
		},
	}
	configFlag(cmd, &path)
	out.Flags(cmd)
	return cmd
}

func configSchema() *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of scheduler.yaml, for editors",
		Example: "  scheduler config schema > scheduler.schema.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var out cli.Output
			return out.JSON(cmd.OutOrStdout(), configFile().Schema())
		},
	}
}

func configFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "config", defaultConfig, "configuration file")
}

// generatedDocs are the pages that follow from the program.
func generatedDocs() manual.Pages {
	page := manual.Program{
		Root: New(), Version: cli.Version, Purpose: "run jobs by priority on nodes whose power is capped",
		Environment: []manual.Item{
			{Term: addrEnv, Text: "As --addr."},
			{Term: socketEnv, Text: "As --socket."},
			{Term: "HEADROOM_CA", Text: "As --ca."},
			{Term: "HEADROOM_CERT", Text: "As --cert."},
			{Term: "HEADROOM_KEY", Text: "As --key."},
		},
		Files: []manual.Item{
			{Term: defaultConfig, Text: "Configuration, see scheduler.yaml(5)."},
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
