package command

import (
	"cmp"
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
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/coordinator"
	"headroom/internal/cli"
	"headroom/internal/config"
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
	cmd := changeOf(o, "token revoke", "ID|TOKEN", "Revoke a token", "4be5a1f0c9d2", func(token string) *headroomv1.ChangeRequest {
		id, _, _ := strings.Cut(strings.TrimSpace(token), ".")
		return &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_RevokeToken{RevokeToken: id}}
	})
	cmd.Long = "Revoke a token by its id (see coordinator token list), or by the whole token that create printed. Only the id is sent."
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
		Example: "  coordinator tls ca create\n  coordinator tls cert create server/c1 --host 10.0.0.11\n  coordinator tls cert create node/n03",
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
		e.Exit, e.Hint = cli.ExitUsage, "an identity is ROLE/NAME, e.g. server/c1, node/n03, operator/mia; a host is a name or an address without a port"
	}
	if errors.Is(err, secure.ErrClock) {
		e.Hint = "set the clock (timedatectl), then repeat the command"
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

// certMaking are the flags of `tls cert create`.
type certMaking struct {
	dir, ca, config string
	hosts           []string
	life            time.Duration
}

const certCreateLong = `create makes a certificate for each identity. Roles: server (a coordinator), node (a powerd), scheduler,
master (of a group of workers), worker (of jobs, on the node that it names), submitter (of jobs), metrics (what
powerd serves), observer, operator and admin (people). Names that two identities share become ROLE-NAME in the files.

The certificate of a server, a scheduler, a master or metrics carries the host names and addresses at which clients reach it,
so that curl, Python and browsers accept it with ca.crt alone: --host, or for a server its addresses in the
coordinator's configuration where this machine has it. Headroom's own programs do not look at them.`

func certCreate() *cobra.Command {
	var m certMaking
	cmd := &cobra.Command{
		Use: "create ROLE/NAME...", Short: "Create certificates: NAME.crt and NAME.key for each identity", Args: cobra.MinimumNArgs(1),
		Long:    certCreateLong,
		Example: "  coordinator tls cert create server/c1 --host c1.example.org,10.0.0.11\n  coordinator tls cert create 'node/n[01-16]' --for 8760h",
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := identities(args)
			if err != nil {
				return err
			}
			return m.create(cmd, all)
		},
	}
	f := cmd.Flags()
	f.StringVar(&m.dir, "dir", ".", "folder of the new files")
	f.StringVar(&m.ca, "ca-dir", ".", "folder of ca.crt and ca.key")
	f.DurationVar(&m.life, "for", secure.CertificateLife, "validity, at most that of the authority")
	f.StringSliceVar(&m.hosts, "host", nil, "host name or address at which clients reach the server, repeatable (default: the addresses of --config)")
	f.StringVar(&m.config, "config", defaultConfig, "configuration that names the servers and their addresses")
	return cmd
}

// create makes all certificates, or none where a file exists.
func (m *certMaking) create(cmd *cobra.Command, all []secure.Identity) error {
	pair, err := secure.ReadPair(filepath.Join(m.ca, "ca.crt"), filepath.Join(m.ca, "ca.key"))
	if err != nil {
		return tlsError(err)
	}
	a, err := secure.ReadAuthority(pair)
	if err == nil {
		err = a.Covers(time.Now())
	}
	if err != nil {
		return tlsError(err)
	}
	servers, err := m.servers(cmd, all)
	if err != nil {
		return err
	}
	var files []string
	for _, who := range all {
		cert, key := m.files(who, all)
		files = append(files, cert, key)
	}
	if err := secure.Absent(files...); err != nil {
		return tlsError(err)
	}
	for i, who := range all {
		pair, err := a.Issue(who, time.Now(), m.life, m.hostsOf(who, servers)...)
		if err == nil {
			err = pair.Write(files[2*i], files[2*i+1])
		}
		if err != nil {
			return tlsError(err)
		}
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s  %s\n%s\n", files[2*i], who, files[2*i+1]); err != nil {
			return err
		}
		if who.Serves() && len(m.hostsOf(who, servers)) == 0 {
			cli.Notef(cmd.ErrOrStderr(), "note: %s names no host: curl, Python and browsers will not accept it; --host names them", who)
		}
	}
	return nil
}

// servers are those of the configuration; the default one need not be on this machine.
func (m *certMaking) servers(cmd *cobra.Command, all []secure.Identity) ([]coordinator.ServerConfig, error) {
	serving := 0
	for _, who := range all {
		if who.Serves() {
			serving++
		}
	}
	switch {
	case len(m.hosts) > 0 && serving != 1:
		return nil, cli.Usage("--host names the hosts of one server, scheduler or metrics certificate; the command makes %d", serving)
	case len(m.hosts) > 0:
		return nil, nil
	case !cmd.Flags().Changed("config"):
		if _, err := os.Stat(m.config); err != nil {
			return nil, nil
		}
	}
	c, err := coordinator.LoadConfig(m.config)
	return c.Servers, err
}

// hostsOf are the hosts of a certificate.
func (m *certMaking) hostsOf(who secure.Identity, servers []coordinator.ServerConfig) []string {
	if !who.Serves() {
		return nil
	}
	hosts := m.hosts
	for _, s := range servers {
		if who == (secure.Identity{Role: secure.Server, Name: s.ID}) {
			hosts = config.Hosts(s.RPC, s.Raft)
		}
	}
	return hosts
}

// files are the names of an identity's files: NAME, and ROLE-NAME where another identity has the name too.
func (m *certMaking) files(who secure.Identity, all []secure.Identity) (cert, key string) {
	base := who.Name
	if slices.ContainsFunc(all, func(x secure.Identity) bool { return x.Name == who.Name && x.Role != who.Role }) {
		base = who.Role + "-" + who.Name
	}
	return filepath.Join(m.dir, base+".crt"), filepath.Join(m.dir, base+".key")
}

// identities are those that the arguments name, once each, all of them valid, before a file is written.
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
			if !slices.Contains(out, who) {
				out = append(out, who)
			}
		}
	}
	return out, nil
}

type certItem struct {
	File      string   `json:"file"`
	Subject   string   `json:"subject"`
	Identity  *string  `json:"identity"`
	Hosts     []string `json:"hosts"`
	Authority bool     `json:"authority"`
	From      string   `json:"from"`
	Ends      string   `json:"ends"`
	Serial    string   `json:"serial"`
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
				rows = append(rows, []string{name, who, cli.Clock(ends), cli.Age(time.Until(ends)), item.Serial, hostsText(item.Hosts)})
			}
			if out.IsJSON() {
				return out.JSON(cmd.OutOrStdout(), map[string]any{"kind": "CertificateList", "api": "v1", "items": items})
			}
			return out.Table(cmd.OutOrStdout(), []string{"FILE", "WHO", "ENDS", "IN", "SERIAL", "HOSTS"}, rows)
		},
	}
}

// hostsText is the first few of the names: a foreign certificate may have a thousand.
func hostsText(hosts []string) string {
	const most = 4
	if len(hosts) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(hosts[:most], ","), len(hosts)-most)
	}
	return cmp.Or(strings.Join(hosts, ","), cli.Unknown)
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
	item := certItem{File: name, Subject: c.Subject.CommonName, Authority: c.IsCA, Serial: secure.SerialOf(c), Hosts: slices.Concat([]string{}, c.DNSNames), From: stamped(c.NotBefore.UnixMicro()), Ends: stamped(c.NotAfter.UnixMicro())}
	for _, ip := range c.IPAddresses {
		item.Hosts = append(item.Hosts, ip.String())
	}
	who, err := secure.IdentityOf(c)
	switch {
	case err == nil:
		item.Identity = new(who.String())
	case !c.IsCA:
		return certItem{}, time.Time{}, fmt.Errorf("%s: %w", name, err)
	}
	return item, c.NotAfter, nil
}
