package command

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/secure"
	"headroom/ledger"
)

func tokenCommand(o *operator) *cobra.Command {
	group := &cobra.Command{Use: "token", Short: "Create, list and revoke tokens", Example: "  coordinator token create mia --role operator"}
	group.AddCommand(tokenCreate(o), tokenList(o), tokenRevoke(o), tokenSelf(o))
	return group
}

// newSecret is a token's id and secret. The id is an argument of commands: it holds
// nothing that could be taken for a flag.
func newSecret() (id, secret string) {
	var b [40]byte
	_, _ = rand.Read(b[:]) // it never fails (crypto/rand)
	return hex.EncodeToString(b[:idBytes]), base64.RawURLEncoding.EncodeToString(b[idBytes:])
}

// idBytes is the length of a token's id; it has twice as many digits.
const idBytes = 6

type tokenItem struct {
	ID      string  `json:"id"`
	Name    string  `json:"name"`
	Role    string  `json:"role"`
	Created string  `json:"created"`
	Expires *string `json:"expires"`
	Token   string  `json:"token,omitempty"`
}

func tokenCreate(o *operator) *cobra.Command {
	c := &changing{o: o}
	var role string
	var life time.Duration
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a token and print it once", Args: cobra.ExactArgs(1),
		Example: "  coordinator token create mia --role operator --for 2160h",
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := ledger.ParseRole(role); err != nil {
				return cli.Usage("--role %q is none of node, observer, operator, admin", role)
			}
			id, secret := newSecret()
			t := &headroomv1.Token{Id: id, Name: args[0], Role: role, Hash: ledger.TokenHash(secret)}
			if life > 0 {
				t.ExpiresUs = time.Now().Add(life).UnixMicro()
			}
			r := &headroomv1.ChangeRequest{Change: c.message(cmd), DryRun: c.dryRun, What: &headroomv1.ChangeRequest_CreateToken{CreateToken: t}}
			out, err := call(cmd.Context(), o, "token create", r, headroomv1connect.ClusterServiceClient.Change)
			if err != nil {
				return c.named(err)
			}
			if c.dryRun {
				return c.print(cmd, out)
			}
			if o.out.IsJSON() {
				item := tokenItem{ID: id, Name: args[0], Role: role, Created: stamped(time.Now().UnixMicro()), Expires: cli.Known(stamped(t.GetExpiresUs()), t.GetExpiresUs() != 0), Token: id + "." + secret}
				return o.out.JSON(cmd.OutOrStdout(), wrap("Token", out.GetMeta(), []tokenItem{item}))
			}
			cli.Notef(cmd.ErrOrStderr(), "note: the token is shown only once; store it in a file with mode 0600")
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s.%s\n", id, secret)
			return err
		},
	}
	c.flags(cmd)
	cmd.Flags().StringVar(&role, "role", "observer", "node, observer, operator or admin")
	cmd.Flags().DurationVar(&life, "for", 0, "validity; 0 is until it is revoked")
	return cmd
}

func tokenList(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the tokens, without their secrets", Args: cobra.NoArgs, Example: "  coordinator token list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := call(cmd.Context(), o, "token list", &headroomv1.ListTokensRequest{}, headroomv1connect.ClusterServiceClient.ListTokens)
			if err != nil {
				return err
			}
			items, rows := []tokenItem{}, [][]string{}
			for _, t := range r.GetTokens() {
				ends := cli.Unknown
				if t.GetExpiresUs() != 0 {
					ends = cli.Clock(time.UnixMicro(t.GetExpiresUs()))
				}
				items = append(items, tokenItem{ID: t.GetId(), Name: t.GetName(), Role: t.GetRole(), Created: stamped(t.GetCreatedUs()), Expires: cli.Known(stamped(t.GetExpiresUs()), t.GetExpiresUs() != 0)})
				rows = append(rows, []string{t.GetId(), t.GetName(), t.GetRole(), cli.Clock(time.UnixMicro(t.GetCreatedUs())), ends})
			}
			return o.print(cmd, &cli.Watch{}, wrap("TokenList", r.GetMeta(), items), func(out io.Writer) error {
				return o.out.TableOf(out, cli.Table{Head: []string{"ID", "NAME", "ROLE", "CREATED", "ENDS"}, Rows: rows, Noun: "token"})
			})
		},
	}
}

func tokenRevoke(o *operator) *cobra.Command {
	c := &changing{o: o}
	cmd := &cobra.Command{
		Use: "revoke ID", Short: "Revoke a token", Args: cobra.ExactArgs(1), Example: "  coordinator token revoke 7Gq0aBcD12",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.send(cmd, "token revoke", &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_RevokeToken{RevokeToken: args[0]}})
		},
	}
	c.flags(cmd)
	return cmd
}

type selfItem struct {
	Name string `json:"name"`
	Role string `json:"role"`
}

func tokenSelf(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "self", Short: "Show your name and role as the server sees them", Args: cobra.NoArgs, Example: "  coordinator token self",
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := call(cmd.Context(), o, "token self", &headroomv1.GetSelfRequest{}, headroomv1connect.ClusterServiceClient.GetSelf)
			if err != nil {
				return err
			}
			if o.out.IsJSON() {
				return o.out.JSON(cmd.OutOrStdout(), wrap("Self", r.GetMeta(), []selfItem{{r.GetName(), r.GetRole()}}))
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s, role %s\n", r.GetName(), r.GetRole())
			return err
		},
	}
}

func tlsCommand(o *operator) *cobra.Command {
	group := &cobra.Command{
		Use: "tls", Short: "Create and revoke the cluster's certificates",
		Example: "  coordinator tls ca create\n  coordinator tls cert create server/c1\n  coordinator tls cert create node/n03",
	}
	ca := &cobra.Command{Use: "ca", Short: "Create the cluster's certificate authority", Example: "  coordinator tls ca create --name lab"}
	ca.AddCommand(authorityCreate())
	cert := &cobra.Command{Use: "cert", Short: "Create certificates for servers, nodes and people", Example: "  coordinator tls cert create operator/mia"}
	cert.AddCommand(certCreate())
	group.AddCommand(ca, cert, tlsInspect(&o.out), tlsRevoke(o), tlsDenied(o))
	return group
}

// tlsError is an error of making or reading certificates.
func tlsError(err error) error {
	e := &cli.Error{Code: "tls", Exit: cli.ExitFailed, Err: err, Message: err.Error(), Hint: "coordinator tls --help shows the order of things"}
	if errors.Is(err, secure.ErrExists) {
		e.Exit, e.Hint = cli.ExitConflict, "nothing is written over; choose another --dir, or move the file away"
	}
	if errors.Is(err, secure.ErrIdentity) {
		e.Exit, e.Hint = cli.ExitUsage, "an identity is ROLE/NAME, e.g. server/c1, node/n03, operator/mia"
	}
	return e
}

func authorityCreate() *cobra.Command {
	var dir, name string
	var life time.Duration
	cmd := &cobra.Command{
		Use: "create", Short: "Create the certificate authority: ca.crt and ca.key", Args: cobra.NoArgs,
		Long: "create makes the cluster's authority. Everybody gets ca.crt. Whoever has ca.key can make an administrator: keep it off the\n" +
			"servers, and copy it where it is safe.",
		Example: "  coordinator tls ca create --name lab --dir ~/headroom-ca",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, pair, err := secure.NewAuthority(name, time.Now(), life)
			if err != nil {
				return tlsError(err)
			}
			cert, key := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
			if err := pair.Write(cert, key); err != nil {
				return tlsError(err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s  give it to everybody\n%s  keep it safe: it makes every certificate\n", cert, key)
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "dir", ".", "folder of the two files")
	cmd.Flags().StringVar(&name, "name", "cluster", "name of the cluster, for display")
	cmd.Flags().DurationVar(&life, "for", secure.AuthorityLife, "validity")
	return cmd
}

func certCreate() *cobra.Command {
	var dir, ca string
	var life time.Duration
	cmd := &cobra.Command{
		Use: "create ROLE/NAME...", Short: "Create certificates: NAME.crt and NAME.key for each identity", Args: cobra.MinimumNArgs(1),
		Long: "create makes a certificate for each identity. Roles: server (a coordinator), node (a powerd), scheduler,\n" +
			"worker (of jobs, on the node that it names), submitter (of jobs), observer, operator and admin (people).",
		Example: "  coordinator tls cert create server/c1 server/c2 server/c3\n  coordinator tls cert create 'node/n[01-16]' --for 8760h",
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := identities(args)
			if err != nil {
				return err
			}
			pair, err := secure.ReadPair(filepath.Join(ca, "ca.crt"), filepath.Join(ca, "ca.key"))
			if err != nil {
				return tlsError(err)
			}
			a, err := secure.ReadAuthority(pair)
			if err != nil {
				return tlsError(err)
			}
			for _, who := range all {
				if err := issue(cmd, a, who, dir, life); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", ".", "folder of the new files")
	cmd.Flags().StringVar(&ca, "ca-dir", ".", "folder of ca.crt and ca.key")
	cmd.Flags().DurationVar(&life, "for", secure.CertificateLife, "validity, at most that of the authority")
	return cmd
}

// identities are those that the arguments name, all of them valid, before a file is written.
func identities(args []string) ([]secure.Identity, error) {
	var out []secure.Identity
	for _, arg := range args {
		role, names, _ := strings.Cut(arg, "/")
		all, err := cli.ParseNodeSet(names)
		if err != nil {
			return nil, err
		}
		for _, name := range all {
			who := secure.Identity{Role: role, Name: name}
			if err := who.Validate(); err != nil {
				return nil, tlsError(err)
			}
			out = append(out, who)
		}
	}
	return out, nil
}

func issue(cmd *cobra.Command, a *secure.Authority, who secure.Identity, dir string, life time.Duration) error {
	pair, err := a.Issue(who, time.Now(), life)
	if err != nil {
		return tlsError(err)
	}
	cert, key := filepath.Join(dir, who.Name+".crt"), filepath.Join(dir, who.Name+".key")
	if err := pair.Write(cert, key); err != nil {
		return tlsError(err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s  %s\n%s\n", cert, who, key)
	return err
}

type certItem struct {
	File      string  `json:"file"`
	Subject   string  `json:"subject"`
	Identity  *string `json:"identity"`
	Authority bool    `json:"authority"`
	From      string  `json:"from"`
	Ends      string  `json:"ends"`
	Serial    string  `json:"serial"`
}

func tlsInspect(out *cli.Output) *cobra.Command {
	return &cobra.Command{
		Use: "inspect FILE...", Short: "Show the identity and expiry of certificates", Args: cobra.MinimumNArgs(1),
		Example: "  coordinator tls inspect /etc/headroom/coordinator/server.crt",
		RunE: func(cmd *cobra.Command, args []string) error {
			items, rows := []certItem{}, [][]string{}
			for _, name := range args {
				item, ends, err := inspect(name)
				if err != nil {
					return tlsError(err)
				}
				items = append(items, item)
				who := "authority"
				if item.Identity != nil {
					who = *item.Identity
				}
				rows = append(rows, []string{name, who, cli.Clock(ends), cli.Age(time.Until(ends)), item.Serial})
			}
			if out.IsJSON() {
				return out.JSON(cmd.OutOrStdout(), map[string]any{"kind": "CertificateList", "api": "v1", "items": items})
			}
			return out.Table(cmd.OutOrStdout(), []string{"FILE", "WHO", "ENDS", "IN", "SERIAL"}, rows)
		},
	}
}

func inspect(name string) (certItem, time.Time, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return certItem{}, time.Time{}, err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return certItem{}, time.Time{}, fmt.Errorf("%s holds no certificate", name)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return certItem{}, time.Time{}, fmt.Errorf("%s: %w", name, err)
	}
	item := certItem{File: name, Subject: c.Subject.CommonName, Authority: c.IsCA, Serial: secure.SerialOf(c), From: stamped(c.NotBefore.UnixMicro()), Ends: stamped(c.NotAfter.UnixMicro())}
	who, err := secure.IdentityOf(c)
	switch {
	case err == nil:
		text := who.String()
		item.Identity = &text
	case !c.IsCA:
		return certItem{}, time.Time{}, fmt.Errorf("%s: %w", name, err)
	}
	return item, c.NotAfter, nil
}
