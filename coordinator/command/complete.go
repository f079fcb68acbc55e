package command

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
)

// completionWait bounds what a shell waits for when somebody presses the tab key.
const completionWait = 500 * time.Millisecond

// names are what a server knows the names of, by the word that stands for one in a
// command's usage.
func (o *operator) names(ctx context.Context, word string) []string {
	var out []string
	switch word {
	case "NODE":
		r, err := call(ctx, o, "complete", &headroomv1.ListNodesRequest{Stale: true}, headroomv1connect.ClusterServiceClient.ListNodes)
		if err == nil {
			for _, n := range r.GetNodes() {
				out = append(out, n.GetName())
			}
		}
	case "DOMAIN":
		r, err := call(ctx, o, "complete", &headroomv1.ListDomainsRequest{Stale: true}, headroomv1connect.ClusterServiceClient.ListDomains)
		if err == nil {
			for _, d := range r.GetDomains() {
				out = append(out, d.GetName())
			}
		}
	case "SERVER":
		r, err := call(ctx, o, "complete", &headroomv1.ListMembersRequest{}, headroomv1connect.ClusterServiceClient.ListMembers)
		if err == nil {
			for _, m := range r.GetMembers() {
				out = append(out, m.GetId())
			}
		}
	case "JOB":
		req := &headroomv1.ListJobsRequest{Stale: true, WithoutSpecs: true}
		r, err := callOn(ctx, o, "complete", req, headroomv1connect.NewJobServiceClient, headroomv1connect.JobServiceClient.ListJobs)
		if err == nil {
			for _, j := range r.GetJobs() {
				out = append(out, j.GetId())
			}
		}
	case "REVISION":
		r, err := call(ctx, o, "complete", &headroomv1.ListChangesRequest{Stale: true}, headroomv1connect.ClusterServiceClient.ListChanges)
		if err == nil {
			for _, c := range r.GetChanges() {
				out = append(out, strconv.FormatUint(c.GetRevision(), 10))
			}
		}
	case "POLICY":
		r, err := call(ctx, o, "complete", &headroomv1.ListPoliciesRequest{Stale: true}, headroomv1connect.ClusterServiceClient.ListPolicies)
		if err == nil {
			for _, p := range r.GetPolicies() {
				if !slices.Contains(out, p.GetName()) { // a name may divide watts and containers
					out = append(out, p.GetName())
				}
			}
		}
	}
	return out
}

// complete lets the shell propose the arguments of every command below cmd: what
// its usage calls NODE is a node, FILE is a file, and so on.
func (o *operator) complete(cmd *cobra.Command) {
	if cmd.RunE != nil {
		words := arguments(cmd.Use)
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			return o.propose(cmd.Context(), wordAt(words, len(args)), args, typed)
		}
		for name, word := range map[string]string{"domain": "DOMAIN", "node": "NODE"} {
			if cmd.LocalNonPersistentFlags().Lookup(name) == nil {
				continue
			}
			_ = cmd.RegisterFlagCompletionFunc(name, func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
				return o.propose(cmd.Context(), word, nil, typed)
			}) // fails for a flag that is not there
		}
	}
	for name, values := range map[string][]string{
		"lost-charge": {"keep", "fail-safe"}, "role": {"observer", "node", "operator", "admin"}, "log-level": {"debug", "info", "warn", "error"},
	} {
		if cmd.LocalNonPersistentFlags().Lookup(name) == nil {
			continue
		}
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // fails for a flag that has one
	}
	for _, sub := range cmd.Commands() {
		o.complete(sub)
	}
}

// propose are the names that begin as typed and are not among args yet.
func (o *operator) propose(ctx context.Context, word string, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if word == "FILE" {
		return nil, cobra.ShellCompDirectiveDefault
	}
	ctx, cancel := context.WithTimeout(ctx, completionWait)
	defer cancel()
	o.patience = completionWait
	fits := slices.DeleteFunc(o.names(ctx, word), func(name string) bool { return !strings.HasPrefix(name, typed) || slices.Contains(args, name) })
	return fits, cobra.ShellCompDirectiveNoFileComp
}

// arguments are the words of a usage line that stand for arguments, without brackets.
func arguments(use string) []string {
	var words []string
	for _, w := range strings.Fields(use)[1:] {
		if strings.HasPrefix(w, "-") {
			break
		}
		words = append(words, strings.Trim(w, "[]"))
	}
	return words
}

// wordAt is the word for the argument at i, "" for none. The last may repeat itself: NODE...
func wordAt(words []string, i int) string {
	last := len(words) - 1
	switch {
	case i <= last:
		return strings.TrimSuffix(words[i], "...")
	case last >= 0 && strings.HasSuffix(words[last], "..."):
		return strings.TrimSuffix(words[last], "...")
	}
	return ""
}
