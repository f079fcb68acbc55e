package command

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/scheduler"
	"headroom/scheduler/hookserver"
)

const (
	// userTokenName is how a job's credentials call the token of its user: docs/hooks.md.
	userTokenName = "headroom.user-token"
	// userFor and sharesFor are how long tokens are good by default, tokenMost at the most.
	userFor   = 30 * 24 * time.Hour
	sharesFor = 365 * 24 * time.Hour
	tokenMost = 366 * 24 * time.Hour
)

func hookCommand() *cobra.Command {
	group := &cobra.Command{Use: "hook", Short: "Create tokens for the hooks inside Hadoop", Example: "  scheduler hook token --user ann"}
	group.AddCommand(hookToken())
	return group
}

func hookToken() *cobra.Command {
	var (
		path, user string
		shares     bool
		life       time.Duration
	)
	cmd := &cobra.Command{
		Use:   "token (--user NAME | --shares)",
		Short: "Create a token for a user's jobs or for the ResourceManager",
		Long: "Create a token from the key of yarn.hooks_key_file and print it; it is not stored. The command must be able to read that\n" +
			"file. With --user it prints JSON for mapreduce.job.credentials.json: the hooks of this user's jobs may then report only\n" +
			"for their own jobs. With --shares it prints the headroom.token-file of the ResourceManager, which may only read shares.\n" +
			"A single token cannot be revoked: replace the key, which invalidates all of them.",
		Example: "  scheduler hook token --user ann > ann.json\n  scheduler hook token --shares > shares.token",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case shares == (user != ""):
				return cli.Usage("one of --user NAME and --shares is needed")
			case life < 0 || life > tokenMost:
				return cli.Usage("--for %v is none of 1h to %v", life, tokenMost)
			case life == 0 && shares:
				life = sharesFor
			case life == 0:
				life = userFor
			}
			keys, err := openHookKeys(path)
			if err != nil {
				return err
			}
			return printHookToken(cmd, keys, user, time.Now().Add(life))
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&user, "user", "", "YARN user whose jobs use the token")
	cmd.Flags().BoolVar(&shares, "shares", false, "create the token of the ResourceManager's plug-in")
	cmd.Flags().DurationVar(&life, "for", 0, "validity (default 720h for a user, 8760h for --shares)")
	return cmd
}

func openHookKeys(path string) (*hookserver.Keys, error) {
	cfg, err := scheduler.LoadConfig(path)
	if err != nil {
		return nil, err
	}
	if cfg.Yarn.HooksKeyFile == "" {
		e := cli.Usage("%s: yarn.hooks_key_file is missing, and tokens are made from it", path)
		e.Hint = "hooks_key_file: /etc/headroom/scheduler/hooks.key is the usual place; head -c 32 /dev/urandom | base64 makes a key"
		return nil, e
	}
	keys, err := hookserver.OpenKeys(cfg.Yarn.HooksKeyFile)
	if err != nil {
		return nil, cli.Failed("run it as root or as the scheduler's user; the key has mode 0600 or 0640", "yarn.hooks_key_file: %w", err)
	}
	return keys, nil
}

// printHookToken prints the token of a user, or of the plug-in where user is empty.
func printHookToken(cmd *cobra.Command, keys *hookserver.Keys, user string, ends time.Time) error {
	text := keys.Shares(ends)
	if user != "" {
		token, err := keys.User(user, ends)
		if err != nil {
			return cli.Usage("--user: %v", err)
		}
		data, err := json.Marshal(map[string]string{userTokenName: token})
		if err != nil {
			return err
		}
		text = string(data)
	}
	cli.Notef(cmd.ErrOrStderr(), "note: good until %s; put it into a file that only its reader can read", ends.UTC().Format(time.RFC3339))
	_, err := fmt.Fprintln(cmd.OutOrStdout(), text)
	return err
}
