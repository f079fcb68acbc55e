package command

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"headroom/coordinator"
	"headroom/internal/cli"
	"headroom/internal/config"
)

func configCommand(out *cli.Output) *cobra.Command {
	var path string
	return configFile().Group(configCheck(out), func(cmd *cobra.Command) { configFlag(cmd, &path) }, func() (any, error) { return coordinator.LoadConfig(path) }, out)
}

// configJSON is `coordinator config check -o json`.
type configJSON struct {
	Kind    string     `json:"kind"`
	API     string     `json:"api"`
	File    string     `json:"file"`
	ID      string     `json:"id"`
	Servers int        `json:"servers"`
	OK      bool       `json:"ok"`
	Checks  cli.Checks `json:"checks"`
}

// serviceUser is the user of the packaged service.
const serviceUser = "headroom-coordinator"

const configCheckLong = `Check the configuration as coordinator run does: its syntax and values, and then this machine: every file that it
names can be read by the user of the service, certificate and key belong together and are valid, the addresses are
this machine's, and state_dir can be written. A domain of site: without a rating is a warning.

Root checks with the rights of the user ` + serviceUser + ` where it exists; --user names another one. Use --syntax-only on a
machine that is not the server.`

func configCheck(out *cli.Output) *cobra.Command {
	var path, user string
	var syntaxOnly bool
	cmd := &cobra.Command{
		Use: "check", Short: "Check a configuration and the files that it names", Long: configCheckLong, Args: cobra.NoArgs,
		Example: "  coordinator config check\n  coordinator config check --config coordinator.yaml --syntax-only",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := coordinator.LoadConfig(path)
			if err != nil {
				return err
			}
			checks := cli.Checks{config.Passed("syntax", fmt.Sprintf("%s: server %s of %d", path, c.ID, len(c.Servers)))}
			if len(c.Site) > 0 {
				checks = append(checks, c.CheckRatings())
			}
			if !syntaxOnly {
				found, err := checkMachine(c, path, user)
				if err != nil {
					return err
				}
				checks = append(checks, found...)
			}
			failed, _ := checks.Count()
			if out.IsJSON() {
				err = out.JSON(cmd.OutOrStdout(), configJSON{
					Kind: "ConfigCheck", API: "v1", File: path, ID: c.ID, Servers: len(c.Servers), OK: failed == 0, Checks: checks,
				})
			} else {
				err = checks.Print(cmd.OutOrStdout(), out)
			}
			return cmp.Or(err, checks.ConfigVerdict())
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&user, "user", "", "user that runs the server, instead of "+serviceUser)
	cmd.Flags().BoolVar(&syntaxOnly, "syntax-only", false, "check only the file, not this machine")
	return cmd
}

// checkMachine runs the checks of the start with the rights of the user that runs the server.
func checkMachine(c coordinator.Config, path, user string) (checks cli.Checks, err error) {
	account, err := config.ServiceAccount(user, serviceUser)
	if err != nil {
		return nil, err
	}
	err = account.Do(func() { checks = append(cli.Checks{config.CheckFile("file", path)}, c.Preflight(time.Now())...) })
	return checks, err
}

func configFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "config", defaultConfig, "configuration file")
}
