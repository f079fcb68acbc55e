// Package access decides who may call a coordinator, and how often.
//
// A Guard checks every procedure. The caller is identified by a certificate, a token of the
// log, or the unix socket. Each procedure needs a role; a procedure without a rule needs role
// admin. A node acts only under its own name, and reads only its own row and the domains
// above it. Calls and streams are limited per caller, so that one caller cannot block others.
// Bounds refuses messages that are longer than any valid one. What a call may then do is not
// decided here.
package access

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"connectrpc.com/connect"

	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/listen"
	"headroom/internal/rpc"
	"headroom/internal/secure"
	"headroom/ledger"
)

// Caller is the caller of a procedure.
type Caller struct {
	Role ledger.Role
	Name string
	// Server is set for another coordinator server.
	Server bool
	// scheduler is set for the scheduler, which may call every procedure about jobs.
	scheduler bool
}

// key identifies the caller for the limits.
func (c Caller) key() string { return string(c.Role) + "/" + c.Name }

type callerKey struct{}

// CallerOf returns the caller; without a guard, an administrator without a name.
func CallerOf(ctx context.Context) Caller {
	c, ok := ctx.Value(callerKey{}).(Caller)
	if !ok {
		return Caller{Role: ledger.RoleAdmin}
	}
	return c
}

// Guard admits calls by certificate, token or unix socket, and limits the calls of each
// caller.
type Guard struct {
	view    func(func(*ledger.State)) // reads what the log has
	logger  *slog.Logger
	now     func() time.Time
	Revoked *secure.Denials
	// Member reports whether a server is a member; nil: every server with a certificate is.
	Member func(id string) bool

	refusals rpc.Refusals // that are logged

	paces rpc.Paces

	mu      sync.Mutex
	streams map[string]int // open ones, by caller
}

// New returns a guard that finds tokens in the state of view.
func New(view func(func(*ledger.State)), logger *slog.Logger) *Guard {
	return &Guard{view: view, logger: logger, now: time.Now, Revoked: secure.NewDenials(), streams: map[string]int{}}
}

// Open returns the number of callers with open streams.
func (g *Guard) Open() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.streams)
}

// Needs returns the role that a procedure needs. A procedure without a rule needs role
// admin, so that a new one is closed by default.
func Needs(procedure string) ledger.Role {
	verb := procedure[strings.LastIndex(procedure, "/")+1:]
	switch service := strings.TrimSuffix(strings.TrimPrefix(procedure, "/"), "/"+verb); {
	case verb == "ListDenied":
		return ledger.RoleObserver
	case verb == "ListTokens":
		return ledger.RoleAdmin
	case procedure == headroomv1connect.MemberServiceDescribeServerProcedure:
		return ledger.RoleObserver // servers call each other; it contains less than a list
	case service == headroomv1connect.NodeServiceName:
		return ledger.RoleNode
	case procedure == headroomv1connect.JobServiceHoldSchedulerProcedure:
		return ledger.RoleAdmin // beside the scheduler: it answers the key of task attempts
	case service == headroomv1connect.JobServiceName && verb != "ListJobs" && verb != "ExplainJob":
		return ledger.RoleOperator
	case strings.HasPrefix(verb, "List"), strings.HasPrefix(verb, "Get"), strings.HasPrefix(verb, "Explain"), strings.HasPrefix(verb, "Await"):
		return ledger.RoleObserver
	case service == headroomv1connect.ClusterServiceName, service == headroomv1connect.BrakeServiceName:
		return ledger.RoleOperator
	}
	return ledger.RoleAdmin
}

// Admit returns a context with the caller, or the reason of the refusal.
func (g *Guard) Admit(ctx context.Context, procedure string, header interface{ Get(string) string }) (context.Context, error) {
	who, err := g.Identify(rpc.CallerOf(ctx), header.Get("Authorization"))
	if err != nil {
		return ctx, g.refused(procedure, err)
	}
	if !listen.Prove(ctx, listen.Guest{Name: who.Name, First: who.Server || who.Role.May(ledger.RoleOperator)}) {
		return ctx, g.refused(procedure, rpc.Refuse(connect.CodeResourceExhausted, "full", cli.ExitUnreachable,
			"too many connections; the remaining ones are reserved for operators and servers", "retry, or use another coordinator"))
	}
	if err := g.belongs(who, procedure); err != nil {
		return ctx, g.refused(procedure, err)
	}
	if who.Server || rpc.CallerOf(ctx).Clear {
		who = forwarded(who, header.Get(ForwardedHeader))
	}
	need := Needs(procedure)
	switch {
	case procedure == headroomv1connect.ClusterServiceListDeniedProcedure: // every peer has to refuse denied certificates
	case who.Node() != "" && nodeReads(procedure): // the handlers filter: see OwnRow and Caller.Node
	case who.scheduler && strings.HasPrefix(procedure, "/"+headroomv1connect.JobServiceName+"/"):
	case who.Role == secure.Master && procedure == headroomv1connect.ClusterServiceListNodesProcedure: // the caps of its group
	case who.Server && (need == ledger.RoleObserver || need == ledger.RoleOperator || procedure == headroomv1connect.MemberServiceLastWordsProcedure):
	case !who.Role.May(need) && !(need == ledger.RoleNode && who.Role == ledger.RoleAdmin):
		return ctx, g.refused(procedure, Denied(who, action(procedure), need))
	}
	// Without TLS nodes have no names: a thousand that reconnect after a change of
	// leader are not one caller with too many calls.
	nameless := need == ledger.RoleNode && who.Name == ""
	if !nameless && !g.paced(who) {
		return ctx, rpc.TooMany(fmt.Sprintf("%s exceeded %d calls per second", who.Name, rpc.CallsPerSecond), "retry in a moment; use --watch instead of a loop")
	}
	return context.WithValue(ctx, callerKey{}, who), nil
}

// belongs refuses a server that is not a member according to this server's log: its
// certificate does not prove membership. It may only ask whether it is a member.
func (g *Guard) belongs(who Caller, procedure string) error {
	if !who.Server || g.Member == nil || procedure == headroomv1connect.MemberServiceDescribeServerProcedure {
		return nil
	}
	if id := strings.TrimPrefix(who.Name, secure.Server+"/"); !g.Member(id) {
		return rpc.Refuse(connect.CodePermissionDenied, "no-member", cli.ExitDenied, "permission denied: "+who.Name+" is not a member of this cluster",
			"coordinator member list lists the members, coordinator member add adds one; coordinator tls revoke "+who.Name+" denies its certificate")
	}
	return nil
}

// nodeReads reports whether a node may call a procedure that reads: its powerd checks
// that a leader answers and that its domains have room for a release.
func nodeReads(procedure string) bool {
	return procedure == headroomv1connect.ClusterServiceListNodesProcedure || procedure == headroomv1connect.ClusterServiceListDomainsProcedure
}

// Denied returns the refusal of an action that needs another role than the caller has.
func Denied(who Caller, action string, need ledger.Role) error {
	return rpc.Refuse(connect.CodePermissionDenied, "denied", cli.ExitDenied,
		fmt.Sprintf("permission denied: %s needs role %s; %s has role %s", action, need, who.Name, who.Role), who.hint(need))
}

// hint returns the hint for a caller who needs another role: whom to ask, and what the present
// role may run.
func (c Caller) hint(need ledger.Role) string {
	may := "coordinator token self shows the role in use"
	switch string(c.Role) {
	case secure.Node:
		may = "as a node, coordinator budget show shows the domains above it"
	case secure.Scheduler:
		may = "as a scheduler, coordinator job list lists the jobs"
	case secure.Master:
		may = "as a master, run scheduler master"
	case secure.Worker:
		may = "as a worker, run scheduler worker"
	case secure.Submitter:
		may = "as a submitter, run scheduler submit"
	}
	return fmt.Sprintf("ask an administrator for role %s; %s", need, may)
}

// action returns the words of a procedure as commands have them: SetBudget is
// "budget set", ListNodes is "node list", GetStatus is "status".
func action(procedure string) string {
	var words []string
	for _, r := range procedure[strings.LastIndex(procedure, "/")+1:] {
		if unicode.IsUpper(r) || len(words) == 0 {
			words = append(words, "")
		}
		words[len(words)-1] += string(unicode.ToLower(r))
	}
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	verb, noun := words[0], strings.Join(words[1:], " ")
	switch {
	case verb == "get":
		return noun
	case verb == "list" && strings.HasSuffix(noun, "ies"):
		noun = strings.TrimSuffix(noun, "ies") + "y"
	case verb == "list":
		noun = strings.TrimSuffix(noun, "s")
	}
	return noun + " " + verb
}

// Identify returns the caller at the other end of a connection.
func (g *Guard) Identify(c rpc.Caller, authorization string) (Caller, error) {
	if secret, ok := strings.CutPrefix(authorization, "Bearer "); ok {
		return g.bearer(secret)
	}
	switch {
	case c.Shown && !c.Ends.IsZero() && !g.now().Before(c.Ends):
		return Caller{}, rpc.Refuse(connect.CodeUnauthenticated, "unauthenticated", cli.ExitDenied,
			fmt.Sprintf("the certificate of %s expired on %s", c.Identity, c.Ends.UTC().Format(time.RFC3339)),
			"coordinator tls cert create "+c.Identity.String()+" creates a new one")
	case c.Shown && g.Revoked.Check(c.Certificate) != nil:
		return Caller{}, rpc.Refuse(connect.CodeUnauthenticated, "certificate-denied", cli.ExitDenied, g.Revoked.Check(c.Certificate).Error(),
			"coordinator tls denied lists the denials; coordinator tls cert create "+c.Identity.String()+" creates a new certificate")
	case c.Shown:
		return certified(c.Identity), nil
	case c.Local:
		return Local(c.UID)
	case c.Clear:
		return Caller{Role: ledger.RoleAdmin}, nil // tls is off: every caller is admitted
	}
	return Caller{}, rpc.Refuse(connect.CodeUnauthenticated, "unauthenticated", cli.ExitDenied,
		"authentication required: no certificate and no token", "use --cert, --key and --ca, or --token-file; on a server use the unix socket")
}

// certified returns the caller with a certificate.
func certified(i secure.Identity) Caller {
	switch i.Role {
	case secure.Server:
		return Caller{Role: ledger.RoleObserver, Name: i.String(), Server: true}
	case secure.Node:
		return Caller{Role: ledger.RoleNode, Name: i.Name}
	case secure.Scheduler, secure.Master, secure.Worker, secure.Submitter: // not roles of the log: they have rules of their own
		return Caller{Role: ledger.Role(i.Role), Name: i.Name, scheduler: i.Role == secure.Scheduler}
	}
	return Caller{Role: ledger.Role(i.Role), Name: i.Name}
}

// Local returns the user at the other end of the unix socket: root and the user of the
// server are administrators.
func Local(uid uint32) (Caller, error) {
	name := "uid " + strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10)); err == nil {
		name = u.Username
	}
	if uid == 0 || int(uid) == os.Geteuid() {
		return Caller{Role: ledger.RoleAdmin, Name: name}, nil
	}
	return Caller{}, rpc.Refuse(connect.CodePermissionDenied, "denied", cli.ExitDenied,
		"permission denied: the socket of this server needs root or the user of the server; this is "+name, "use sudo, or a token over the network")
}

func (g *Guard) bearer(text string) (Caller, error) {
	id, secret, _ := strings.Cut(text, ".")
	var t ledger.Token
	ok := false
	g.view(func(s *ledger.State) { t, ok = s.Bearer(id, secret, g.now().UnixMicro()) })
	if !ok {
		return Caller{}, rpc.Refuse(connect.CodeUnauthenticated, "unauthenticated", cli.ExitDenied, "the token is unknown, revoked or expired",
			"coordinator token list lists the tokens; an administrator can create a new one")
	}
	return Caller{Role: t.Role, Name: t.Name}, nil
}

func (g *Guard) refused(procedure string, err error) error {
	if g.refusals.News(err, g.now()) {
		g.logger.Warn("call refused", slog.String("call", procedure), slog.Any("error", err))
	}
	return err
}

// CallBurst is the number of calls of one caller at once.
const CallBurst = rpc.CallBurst

// paced takes a token out of the caller's bucket, and reports whether there was one.
func (g *Guard) paced(who Caller) bool { return g.paces.Allow(who.key(), g.now()) }

// WrapUnary implements connect.Interceptor.
func (g *Guard) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		ctx, err := g.Admit(ctx, r.Spec().Procedure, r.Header())
		if err != nil {
			return nil, err
		}
		return next(ctx, r)
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (g *Guard) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor.
func (g *Guard) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, c connect.StreamingHandlerConn) error {
		ctx, err := g.Admit(ctx, c.Spec().Procedure, c.RequestHeader())
		if err != nil {
			return err
		}
		done, err := g.opened(ctx)
		if err != nil {
			return err
		}
		defer done()
		return next(ctx, guardedConn{rpc.Guarded{StreamingHandlerConn: c, Still: func() error {
			who, err := g.Identify(rpc.CallerOf(ctx), c.RequestHeader().Get("Authorization"))
			if err == nil {
				err = g.belongs(who, c.Spec().Procedure)
			}
			return err
		}}})
	}
}

// guardedConn checks sent messages too: a token may be revoked while nothing is received.
type guardedConn struct{ rpc.Guarded }

// Send implements connect.StreamingHandlerConn.
func (c guardedConn) Send(m any) error {
	if err := c.Still(); err != nil {
		return err
	}
	return c.StreamingHandlerConn.Send(m)
}

// StreamsPerCaller bounds the open streams of one caller: a node or a scheduler has one,
// and a second one while it reconnects.
const StreamsPerCaller = 32

// opened counts a stream until done is called. Without TLS callers are not distinguished.
func (g *Guard) opened(ctx context.Context) (done func(), err error) {
	if rpc.CallerOf(ctx).Clear {
		return func() {}, nil
	}
	who := CallerOf(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.streams[who.key()] >= StreamsPerCaller {
		return nil, rpc.Refuse(connect.CodeResourceExhausted, "too-many", cli.ExitUnreachable,
			fmt.Sprintf("too many streams: %s has %d open, the maximum is %d", who.Name, g.streams[who.key()], StreamsPerCaller), "close unused streams")
	}
	g.streams[who.key()]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.streams[who.key()]--; g.streams[who.key()] <= 0 {
			delete(g.streams, who.key())
		}
	}, nil
}

// Node returns the name of the calling node, whose reads are filtered to its own row
// and to the domains above it. It is empty for every other caller.
func (c Caller) Node() string {
	if c.Role != ledger.RoleNode {
		return ""
	}
	return c.Name
}

// OwnRow refuses a node that reads the row of another one, or of all.
func OwnRow(ctx context.Context, node string) error {
	who := CallerOf(ctx)
	if who.Role != ledger.RoleNode || who.Name == node {
		return nil
	}
	row := node
	if row == "" {
		row = "all nodes"
	}
	return rpc.Refuse(connect.CodePermissionDenied, "denied", cli.ExitDenied,
		fmt.Sprintf("permission denied: node list of %s needs role %s; %s has role %s and reads its own row only", row, ledger.RoleObserver, who.Name, who.Role),
		who.hint(ledger.RoleObserver))
}

// OwnNode refuses a node that reports under the name of another one.
func OwnNode(ctx context.Context, node string) error {
	if who := CallerOf(ctx); who.Role == ledger.RoleNode && who.Name != node {
		return rpc.Refuse(connect.CodePermissionDenied, "denied", cli.ExitDenied,
			fmt.Sprintf("permission denied: the certificate names %s, the report names %s", who.Name, node),
			"set node in powerd.yaml to the name in the certificate, or create one with coordinator tls cert create node/"+node)
	}
	return nil
}

// ForwardedHeader carries the caller on the unix socket of a follower: ROLE/NAME. It is
// accepted from servers only.
const ForwardedHeader = "Headroom-Caller"

// forwarded returns the caller that another server forwards.
func forwarded(who Caller, header string) Caller {
	role, name, ok := strings.Cut(header, "/")
	if r, err := ledger.ParseRole(role); ok && err == nil {
		return Caller{Role: r, Name: name}
	}
	return who
}
