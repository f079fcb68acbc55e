// Package access decides who may call what: by certificate, by the unix socket, and without
// either only if the configuration says dev.
//
// The one idea: a call carries the identity that was proven, never the one that it claims. A
// method without a rule needs role admin.
//
// Guarantees: an expired or denied certificate is refused, on open streams too; a worker acts
// only for its own node, and a submitter changes only their own jobs.
package access

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/listen"
	"headroom/internal/rpc"
	"headroom/internal/secure"
	"headroom/scheduler/jobfile"
	"headroom/scheduler/local"
)

// Caller is who asks.
type Caller struct {
	// Role is what the certificate, or the socket, says they are.
	Role string
	// Name is the proven identity as logs and the audit log show it, "submitter/alice"
	// or "unix/alice". Empty: the connection is in the clear, and nobody is proven.
	Name string
	// node is the only node that a worker may speak for; empty for any.
	node string
}

type callerKey struct{}

// CallerOf returns who asked; without the guard, nobody that is proven.
func CallerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// WithCaller returns a context with the caller.
func WithCaller(ctx context.Context, who Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, who)
}

// Proven reports whether the caller showed who they are.
func (c Caller) Proven() bool { return c.Name != "" }

// Sign puts the proven caller into a change in place of the name that the client claims. It is
// asked for that caller: the request ids of the scheduler itself are out of every caller's reach.
func (c Caller) Sign(change *headroomv1.Change) {
	if change == nil {
		return
	}
	if c.Proven() {
		change.Actor = c.Name
	}
	change.OnBehalfOf = cmp.Or(c.Name, "unproven/"+change.GetActor())
}

// Needs returns the roles that may call a method. A method that is not listed takes an
// administrator: a new one is closed until its roles are decided.
func Needs(procedure string) []string {
	switch procedure {
	case headroomv1connect.SchedulerServiceSubmitProcedure, headroomv1connect.SchedulerServiceCancelProcedure,
		headroomv1connect.SchedulerServiceLogsProcedure:
		return []string{secure.Submitter, secure.Operator, secure.Admin}
	case headroomv1connect.SchedulerServiceListProcedure:
		return []string{secure.Submitter, secure.Observer, secure.Operator, secure.Admin}
	case headroomv1connect.SchedulerServiceDrainProcedure:
		return []string{secure.Operator, secure.Admin}
	case headroomv1connect.WorkerServiceWorkProcedure:
		return []string{secure.Worker}
	case headroomv1connect.MasterServicePlaceProcedure:
		return []string{secure.Scheduler}
	case headroomv1connect.SlotServiceReportProcedure, headroomv1connect.SlotServiceAwaitProcedure:
		return []string{secure.Submitter, secure.Scheduler, secure.Admin}
	case headroomv1connect.MasterServiceGetGroupProcedure:
		return []string{secure.Master, secure.Scheduler, secure.Observer, secure.Operator, secure.Admin}
	}
	return []string{secure.Admin}
}

// Guard admits calls by certificate or unix socket, and in the clear only with dev.
type Guard struct {
	dev bool
	// group is the group of users whose members operate by the unix socket; empty for none.
	group string
	// Denials are the certificates that the coordinators have denied.
	Denials *secure.Denials
	logger  *slog.Logger
	now     func() time.Time

	// Refused is told what proven callers tried and may not do, once an hour for each caller and method; nil for nobody.
	Refused func(who Caller, action string)

	refusals rpc.Refusals // that are logged
	paces    rpc.Paces
	audited  rpc.Refusals // that Refused is told of

	mu     sync.Mutex
	asking map[chan<- struct{}]bool
	// running are the calls and streams that are answered now, by caller.
	running map[string]int
}

// callsAtOnce bounds the calls and streams of a caller that are answered at one time: each application of a framework waits in
// one and reports in another.
const callsAtOnce = 256

// Listen has a channel told when more is denied, until the function that it returns is called.
func (g *Guard) Listen(c chan<- struct{}) (end func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.asking == nil {
		g.asking = map[chan<- struct{}]bool{}
	}
	g.asking[c] = true
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.asking, c)
	}
}

// TellDenials notifies the listeners of new denials.
func (g *Guard) TellDenials() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.asking {
		select {
		case c <- struct{}{}:
		default: // it is already notified
		}
	}
}

// New admits nobody in the clear unless dev says so; members of the group operate by
// the unix socket.
func New(dev bool, group string, logger *slog.Logger) *Guard {
	return &Guard{dev: dev, group: group, Denials: secure.NewDenials(), logger: logger, now: time.Now}
}

// Admit returns a context with the caller, or why the call is refused.
func (g *Guard) Admit(ctx context.Context, procedure string) (context.Context, error) {
	peer := rpc.CallerOf(ctx)
	who, err := g.identify(peer)
	if err == nil && !listen.Prove(ctx, listen.Guest{Name: who.Name, First: who.Role == secure.Operator || who.Role == secure.Admin}) {
		err = rpc.Refuse(connect.CodeResourceExhausted, "full", cli.ExitUnreachable,
			"all connections of this port are in use except those reserved for operators", "try again in a moment")
	}
	if caller := cmp.Or(who.Name, peer.Address); err == nil && !g.paces.Allow(caller, cost(procedure), g.now()) {
		err = rpc.TooMany(fmt.Sprintf("%s exceeded %d calls per second", cmp.Or(caller, "nobody"), rpc.CallsPerSecond), "retry in a second")
	}
	if err == nil && who.Proven() && !slices.Contains(Needs(procedure), who.Role) {
		err = notPermitted(who, procedure)
		g.Audit(who, verbOf(procedure), verbOf(procedure))
	}
	if err != nil {
		g.logRefusal(procedure, err)
		return ctx, err
	}
	return WithCaller(ctx, who), nil
}

// cost returns how much of a caller's rate a call takes. The drivers of one user report each task that begins or ends.
func cost(procedure string) float64 {
	switch procedure {
	case headroomv1connect.SlotServiceReportProcedure, headroomv1connect.SlotServiceAwaitProcedure:
		return 0.2
	}
	return 1
}

// begin counts a call until done is called. Without TLS callers are not distinguished.
func (g *Guard) begin(ctx context.Context) (done func(), err error) {
	who := CallerOf(ctx).Name
	if who == "" {
		return func() {}, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running[who] >= callsAtOnce {
		return nil, rpc.TooMany(fmt.Sprintf("%s has %d open, the maximum is %d", who, g.running[who], callsAtOnce), "wait until some are answered")
	}
	if g.running == nil {
		g.running = map[string]int{}
	}
	g.running[who]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.running[who]--; g.running[who] == 0 {
			delete(g.running, who)
		}
	}, nil
}

// Audit reports an action that a proven caller may not carry out.
func (g *Guard) Audit(who Caller, verb, action string) {
	if g.Refused != nil && who.Proven() && g.audited.Fresh(who.Name+" "+verb, g.now()) {
		g.Refused(who, action)
	}
}

func verbOf(procedure string) string {
	return strings.ToLower(procedure[strings.LastIndex(procedure, "/")+1:])
}

func notPermitted(who Caller, procedure string) error {
	verb, need := verbOf(procedure), Needs(procedure)
	return rpc.Refuse(connect.CodePermissionDenied, "denied", cli.ExitDenied,
		fmt.Sprintf("permission denied: %s needs role %s; %s has role %s", verb, strings.Join(need, " or "), who.Name, who.Role),
		"coordinator tls cert create "+need[0]+"/NAME makes a certificate for it")
}

// identify returns who is at the other end of a connection.
func (g *Guard) identify(c rpc.Caller) (Caller, error) {
	switch {
	case c.Shown && !c.Ends.IsZero() && !g.now().Before(c.Ends):
		return Caller{}, rpc.Refuse(connect.CodeUnauthenticated, "unauthenticated", cli.ExitDenied,
			fmt.Sprintf("the certificate of %s expired on %s", c.Identity, c.Ends.UTC().Format(time.RFC3339)),
			"coordinator tls cert create "+c.Identity.String()+" makes a new one")
	case c.Shown && g.Denials.Check(c.Certificate) != nil:
		return Caller{}, rpc.Refuse(connect.CodeUnauthenticated, "certificate-denied", cli.ExitDenied, g.Denials.Check(c.Certificate).Error(),
			"coordinator tls denied lists the denials; coordinator tls cert create "+c.Identity.String()+" makes a new certificate")
	case c.Shown:
		who := Caller{Role: c.Identity.Role, Name: c.Identity.String()}
		if who.Role == secure.Worker {
			who.node = c.Identity.Name
		}
		return who, nil
	case c.Local:
		return g.local(c.UID)
	case c.Clear && g.dev:
		return Caller{}, nil
	}
	return Caller{}, rpc.Refuse(connect.CodeUnauthenticated, "unauthenticated", cli.ExitDenied,
		"the scheduler requires a client certificate", "use --ca, --cert and --key, or --socket for the scheduler's unix socket on its own machine")
}

// local is the user at the other end of the unix socket: root and the scheduler's own
// user administrate, members of the configured group operate.
func (g *Guard) local(uid uint32) (Caller, error) {
	id := strconv.FormatUint(uint64(uid), 10)
	name := "unix/uid-" + id
	u, err := user.LookupId(id)
	if err == nil {
		name = "unix/" + u.Username
	}
	switch {
	case uid == 0 || int(uid) == os.Geteuid():
		return Caller{Role: secure.Admin, Name: name}, nil
	case err == nil && g.member(u):
		return Caller{Role: secure.Operator, Name: name}, nil
	}
	return Caller{}, rpc.Refuse(connect.CodePermissionDenied, "denied", cli.ExitDenied,
		fmt.Sprintf("permission denied: %s may not use the scheduler's socket", name),
		"socket_group in scheduler.yaml names the group whose members may; or use a certificate: --ca, --cert, --key")
}

// member reports whether the user is in the operators' group.
func (g *Guard) member(u *user.User) bool {
	if g.group == "" {
		return false
	}
	group, err := user.LookupGroup(g.group)
	if err != nil {
		return false
	}
	groups, err := u.GroupIds()
	return err == nil && slices.Contains(groups, group.Gid)
}

func (g *Guard) logRefusal(procedure string, err error) {
	if g.refusals.News(err, g.now()) {
		g.logger.Warn("call refused", slog.String("call", procedure), slog.Any("error", err))
	}
}

// WrapUnary implements connect.Interceptor.
func (g *Guard) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		ctx, err := g.Admit(ctx, r.Spec().Procedure)
		if err != nil {
			return nil, err
		}
		done, err := g.begin(ctx)
		if err != nil {
			return nil, err
		}
		defer done()
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
		ctx, err := g.Admit(ctx, c.Spec().Procedure)
		if err != nil {
			return err
		}
		done, err := g.begin(ctx)
		if err != nil {
			return err
		}
		defer done()
		return next(ctx, rpc.Guarded{StreamingHandlerConn: c, Still: func() error {
			_, err := g.identify(rpc.CallerOf(ctx))
			return err
		}})
	}
}

// CheckHello refuses an invalid first message of a worker, and a worker that speaks for another node than its certificate
// names.
func CheckHello(who Caller, h *headroomv1.WorkerHello) error {
	if !jobfile.ValidName(h.GetNode()) || h.GetSlots() < 1 || h.GetSlots() > jobfile.SlotsMax {
		return rpc.Refuse(connect.CodeInvalidArgument, "usage", cli.ExitUsage,
			fmt.Sprintf("worker %q with %d slots", h.GetNode(), h.GetSlots()),
			fmt.Sprintf("a worker opens its stream with its node's name and 1 to %d slots", jobfile.SlotsMax))
	}
	if most := int(h.GetSlots()) + local.ResultsKept; len(h.GetRunning()) > most || len(h.GetGrantKey()) > secure.KeySize {
		return rpc.Refuse(connect.CodeInvalidArgument, "usage", cli.ExitUsage,
			fmt.Sprintf("worker %q with %d slots names %d attempts; the maximum is %d", h.GetNode(), h.GetSlots(), len(h.GetRunning()), most),
			"a worker names the attempts that it runs, and those whose results it repeats")
	}
	return OwnNode(who, h.GetNode())
}

// OwnNode refuses a worker that speaks for another node than its certificate names.
func OwnNode(who Caller, node string) error {
	if who.node == "" || who.node == node {
		return nil
	}
	return rpc.Refuse(connect.CodePermissionDenied, "denied", cli.ExitDenied,
		fmt.Sprintf("permission denied: %s may not run tasks as node %s", who.Name, node),
		"coordinator tls cert create worker/"+node+" creates the certificate of that node's worker")
}

// OwnName refuses a distributor that speaks for another one than its certificate names.
func OwnName(who Caller, name string) error {
	if own := (secure.Identity{Role: secure.Scheduler, Name: name}).String(); !who.Proven() || who.Role != secure.Scheduler || who.Name == own {
		return nil
	}
	return rpc.Refuse(connect.CodePermissionDenied, "denied", cli.ExitDenied,
		fmt.Sprintf("permission denied: %s may not hand tasks over as distributor %s", who.Name, name),
		"coordinator tls cert create scheduler/"+name+" creates the certificate of that distributor")
}

// OwnJob refuses a submitter who changes the job of somebody else, or reads what it wrote.
func OwnJob(who Caller, id, submitter string) error {
	if who.Role != secure.Submitter || who.Name == submitter {
		return nil
	}
	if submitter == "" {
		submitter = "somebody unknown"
	}
	return &cli.Error{
		Code: "denied", Exit: cli.ExitDenied, Message: fmt.Sprintf("permission denied: job %s was submitted by %s, not by %s", id, submitter, who.Name),
		Hint: "its submitter or an operator may do that",
	}
}

// Pending counts submissions under way, by submitter. The zero value is ready.
type Pending struct {
	mu sync.Mutex
	n  map[string]int
}

// Begin counts a submission until done is called, and returns how many others of the
// same submitter are under way.
func (p *Pending) Begin(name string) (others int, done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n == nil {
		p.n = make(map[string]int)
	}
	others = p.n[name]
	p.n[name]++
	return others, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.n[name]--; p.n[name] == 0 {
			delete(p.n, name)
		}
	}
}
