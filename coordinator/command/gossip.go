package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"headroom/gossip"
	"headroom/internal/cli"
)

func gossipCommand(out *cli.Output) *cobra.Command {
	group := &cobra.Command{Use: "gossip", Short: "Create and rotate the gossip key", Example: "  coordinator gossip key create gossip.key"}
	key := &cobra.Command{
		Use: "key", Short: "Create and rotate a gossip key file",
		Long: "A key file holds one key a line. A member sends with the first key and accepts all of them. It reads the file at start and at SIGHUP\n" +
			"(systemctl reload). A key is rotated in three steps; finish each on every server and node before the next:\n\n" +
			"  1. add: append a new key, so that every member accepts it\n" +
			"  2. promote: move it to the first line, so that every member sends with it\n" +
			"  3. remove: delete the other keys\n\n" +
			"Do each step on one machine, copy the file to the others, and reload them. coordinator member health shows the keys of each server\n" +
			"and members that use a key that is not accepted.",
		Example: "  coordinator gossip key create gossip.key\n  coordinator gossip key add gossip.key\n  coordinator gossip key promote gossip.key\n  coordinator gossip key remove gossip.key",
	}
	key.AddCommand(
		keyCreate(out), keyShow(out),
		keyChange(out, "add", "Rotation step 1: add a new key, accepted but not yet used", func(keys gossip.Keys) (gossip.Keys, error) {
			fresh, err := newGossipKey()
			return append(keys, fresh), err
		}),
		keyChange(out, "promote", "Rotation step 2: start using the last key", func(keys gossip.Keys) (gossip.Keys, error) {
			if len(keys) < 2 {
				return nil, lonelyKey("there is no second key to promote", "coordinator gossip key add FILE adds one")
			}
			last := len(keys) - 1
			return append(gossip.Keys{keys[last]}, keys[:last]...), nil
		}),
		keyChange(out, "remove", "Rotation step 3: remove all keys but the first", func(keys gossip.Keys) (gossip.Keys, error) {
			if len(keys) < 2 {
				return nil, lonelyKey("there is no second key to remove", "a file needs one key; coordinator gossip key add FILE begins a change")
			}
			return keys[:1], nil
		}),
	)
	group.AddCommand(key)
	return group
}

func lonelyKey(message, hint string) error {
	return &cli.Error{Code: "conflict", Exit: cli.ExitConflict, Message: message, Hint: hint}
}

func newGossipKey() ([]byte, error) {
	text, err := gossip.NewKey()
	if err != nil {
		return nil, err
	}
	keys, err := gossip.ParseKeys(text)
	if err != nil {
		return nil, err
	}
	return keys[0], nil
}

// keyItem is one key of a file in JSON.
type keyItem struct {
	Fingerprint string `json:"fingerprint"`
	// Sends says that it is what members with this file send with.
	Sends bool `json:"sends"`
}

// printKeys prints the fingerprints of keys, never the keys.
func printKeys(cmd *cobra.Command, out *cli.Output, keys gossip.Keys) error {
	items, rows := []keyItem{}, [][]string{}
	for i, f := range keys.Fingerprints() {
		use := "accepts"
		if i == 0 {
			use = "sends, accepts"
		}
		items, rows = append(items, keyItem{f, i == 0}), append(rows, []string{f, use})
	}
	if out.IsJSON() {
		return out.JSON(cmd.OutOrStdout(), map[string]any{"kind": "GossipKeyList", "api": "v1", "items": items})
	}
	return out.Table(cmd.OutOrStdout(), []string{"KEY", "USE"}, rows)
}

func keyCreate(out *cli.Output) *cobra.Command {
	return &cobra.Command{
		Use: "create FILE", Short: "Create a key file with one new key", Args: cobra.ExactArgs(1),
		Example: "  coordinator gossip key create gossip.key",
		RunE: func(cmd *cobra.Command, args []string) error {
			fresh, err := newGossipKey()
			if err != nil {
				return err
			}
			keys := gossip.Keys{fresh}
			f, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if errors.Is(err, fs.ErrExist) {
				return lonelyKey(args[0]+" is there already", "nothing is written over; coordinator gossip key add "+args[0]+" begins a change of its key")
			}
			if err != nil {
				return keyFileError(err)
			}
			_, err = f.WriteString(keys.Text())
			if err := errors.Join(err, f.Close()); err != nil {
				return keyFileError(err)
			}
			return printKeys(cmd, out, keys)
		},
	}
}

func keyShow(out *cli.Output) *cobra.Command {
	return &cobra.Command{
		Use: "show FILE", Short: "Show the fingerprints of the keys in a file", Args: cobra.ExactArgs(1), Example: "  coordinator gossip key show /etc/headroom/gossip.key",
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, err := gossip.LoadKeys(args[0])
			if err != nil {
				return err
			}
			return printKeys(cmd, out, keys)
		},
	}
}

// keyChange is a command that changes the keys of a file. The file stays the same
// one, with its owner and mode: the services read it as users of their own.
func keyChange(out *cli.Output, verb, short string, change func(gossip.Keys) (gossip.Keys, error)) *cobra.Command {
	return &cobra.Command{
		Use: verb + " FILE", Short: short, Args: cobra.ExactArgs(1), Example: "  coordinator gossip key " + verb + " gossip.key",
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, err := gossip.LoadKeys(args[0])
			if err != nil {
				return err
			}
			if keys, err = change(keys); err != nil {
				return err
			}
			if _, err := gossip.ParseKeys(keys.Text()); err != nil {
				return lonelyKey(fmt.Sprintf("%s %v", args[0], err), "bring the changes that were begun to their end: coordinator gossip key remove "+args[0])
			}
			if err := os.WriteFile(args[0], []byte(keys.Text()), 0o600); err != nil {
				return keyFileError(err)
			}
			cli.Notef(cmd.ErrOrStderr(), "note: copy the file to every server and node, and reload them, before the next step")
			return printKeys(cmd, out, keys)
		},
	}
}

func keyFileError(err error) error {
	return &cli.Error{Code: "failed", Exit: cli.ExitFailed, Err: err, Message: strings.TrimPrefix(err.Error(), "open "), Hint: "name a file that you may write"}
}
