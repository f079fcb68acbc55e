package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"headroom/consensus"
	"headroom/coordinator"
	"headroom/internal/cli"
	"headroom/ledger"
)

// errEnough ends reading a log.
var errEnough = errors.New("enough")

// rawEntry is one entry of `debug raft-log`.
type rawEntry struct {
	Index   uint64          `json:"index"`
	Term    uint64          `json:"term"`
	Type    string          `json:"type"`
	At      *string         `json:"at"`
	Bytes   int             `json:"bytes"`
	Stray   bool            `json:"stray"`
	Command json.RawMessage `json:"command"`
}

func debugRaftLog(o *operator) *cobra.Command {
	config, from, limit := "", uint64(0), 100
	cmd := &cobra.Command{
		Use: "raft-log", Short: "Print the Raft log of a stopped server", Args: cobra.NoArgs,
		Long: "Print the entries of the log on this server's disk; change nothing. The server must be stopped. Entries older than the newest\n" +
			"snapshot may be missing. The last entries may not have been committed: one log alone does not show it.",
		Example: "  coordinator debug raft-log --limit 20\n  coordinator debug raft-log --from 4100 -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return cli.Usage("--limit %d; print one entry at least", limit)
			}
			cfg, err := coordinator.LoadConfig(config)
			if err != nil {
				return err
			}
			entries, err := readLog(cfg, from, limit)
			if err != nil {
				return err
			}
			return printLog(cmd, o, cfg, entries)
		},
	}
	cmd.Flags().StringVar(&config, "config", "/etc/headroom/coordinator.yaml", "configuration file of the stopped server")
	cmd.Flags().Uint64Var(&from, "from", 0, "index of the first entry (default: the newest entries)")
	cmd.Flags().IntVar(&limit, "limit", limit, "number of entries")
	return cmd
}

// readLog are the entries from an index on, or the newest ones.
func readLog(cfg coordinator.Config, from uint64, limit int) ([]consensus.Entry, error) {
	var out []consensus.Entry
	err := cfg.Stopped().ReadLog(from, func(e consensus.Entry) error {
		out = append(out, e)
		switch {
		case from > 0 && len(out) == limit:
			return errEnough
		case from == 0 && len(out) > 2*limit:
			out = slices.Clone(out[len(out)-limit:])
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	return out[max(0, len(out)-limit):], nil
}

func printLog(cmd *cobra.Command, o *operator, cfg coordinator.Config, entries []consensus.Entry) error {
	items, rows := make([]rawEntry, 0, len(entries)), [][]string{}
	for _, e := range entries {
		item := rawEntry{Index: e.Index, Term: e.Term, Type: e.Type, Bytes: len(e.Data), Stray: e.Stray}
		if !e.At.IsZero() {
			item.At = new(e.At.UTC().Format(time.RFC3339Nano))
		}
		if json.Valid(e.Data) {
			item.Command = ledger.Redacted(e.Data)
		}
		items = append(items, item)
		rows = append(rows, []string{
			fmt.Sprint(e.Index), fmt.Sprint(e.Term), e.Type, cli.Opt(item.At, func(s string) string { return s }), fmt.Sprint(item.Bytes), commandWords(item),
		})
	}
	if o.out.IsJSON() {
		return o.out.JSON(cmd.OutOrStdout(), envelope{
			Kind: "RaftEntryList", API: "v1", AsOf: cli.Now(), Consistency: "offline", Server: cfg.ID, Items: items,
		})
	}
	return o.out.TableOf(cmd.OutOrStdout(), cli.Table{Head: []string{"INDEX", "TERM", "TYPE", "WHEN", "BYTES", "WHAT"}, Rows: rows, Noun: "entry"})
}

// commandWords are the parts of a command, and who sent it and why.
func commandWords(e rawEntry) string {
	var parts map[string]json.RawMessage
	if e.Command == nil || json.Unmarshal(e.Command, &parts) != nil {
		return cli.Unknown
	}
	var said []string
	for _, name := range []string{"actor", "reason"} {
		var text string
		if json.Unmarshal(parts[name], &text) == nil && text != "" {
			said = append(said, text)
		}
		delete(parts, name)
	}
	for _, frame := range []string{"rules", "ignorable", "epoch", "at_us", "request_id", "caller", "user", "content", "check_revision"} {
		delete(parts, frame)
	}
	what := strings.Join(slices.Sorted(maps.Keys(parts)), ", ")
	if len(said) > 0 {
		what += " (" + strings.Join(said, ": ") + ")"
	}
	if e.Stray {
		what += ", never applied"
	}
	return what
}
