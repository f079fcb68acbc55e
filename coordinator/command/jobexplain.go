package command

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/units"
)

// jobMoveItem is what is done about a job.
type jobMoveItem struct {
	Kind   string `json:"kind" of:"-"`
	Reason string `json:"reason"`
	At     string `json:"at"`
	// CostJ is of the sprint budget, CostQuality a part of its tasks, TimeS how its end moves.
	CostJ        *float64 `json:"cost_j"`
	CostQuality  *float64 `json:"cost_quality"`
	TimeS        *float64 `json:"time_s"`
	Acknowledged bool     `json:"acknowledged"`
	Refused      *string  `json:"refused"`
	// Candidates are what could be done about a promise at risk, the best first.
	Candidates []candidateItem `json:"candidates" of:"-"`
}

// candidateItem is one lever at a promise at risk; Worth is in weighted seconds.
type candidateItem struct {
	Kind        string   `json:"kind" of:"-"`
	TimeS       *float64 `json:"time_s"`
	CostJ       *float64 `json:"cost_j"`
	CostQuality *float64 `json:"cost_quality"`
	Worth       float64  `json:"worth"`
	Chosen      bool     `json:"chosen"`
	Why         string   `json:"why"`
}

// deflationItem is the drop ratio in force.
type deflationItem struct {
	Theta  float64 `json:"theta"`
	Seed   uint64  `json:"seed"`
	Reason string  `json:"reason"`
}

// explainedJob is a job as `job explain` tells it.
type explainedJob struct {
	jobDetail

	Moves  []jobMoveItem `json:"moves"`
	Inputs inputsItem    `json:"inputs"`
	Sprint *sprintItem   `json:"sprint"`
}

// inputsItem is what decides about a job beside its progress.
type inputsItem struct {
	// Theta and SprintAfterS are its operating point.
	Theta        *float64 `json:"theta"`
	SprintAfterS *float64 `json:"sprint_after_s"`
	SprintDue    bool     `json:"sprint_due"`
	Floor        float64  `json:"floor"`
	CapShare     *float64 `json:"cap_share"`
	// Budgets are the pots that its class may sprint from.
	Budgets []potItem `json:"sprint_budgets"`
}

func jobExplain(o *operator) *cobra.Command {
	var w cli.Watch
	cmd := &cobra.Command{
		Use: "explain JOB", Short: "Explain the actions taken for a job, with reasons and costs", Args: cobra.ExactArgs(1),
		Long: "Explain the action in force for a job: sprint (its nodes run faster, from the sprint budget), cap (it runs under the cap of its\n" +
			"nodes), reallocate (another share of the containers), deflate (fewer tasks), copy (stragglers run a second time) or none, with the\n" +
			"reason in numbers and the cost. Below: what decided; while the deadline is at risk, the alternatives with time, cost and worth in\n" +
			"weighted seconds; and earlier actions, newest last, as far as the present leader has them.",
		Example: "  coordinator job explain words-7f3a\n  coordinator job explain words-7f3a -o json",
		RunE: func(cmd *cobra.Command, ids []string) error {
			return w.Run(cmd, func() error {
				r, err := callOn(cmd.Context(), o, "job explain", &headroomv1.ExplainJobRequest{Id: ids[0]}, headroomv1connect.NewJobServiceClient, headroomv1connect.JobServiceClient.ExplainJob)
				if err != nil {
					return err
				}
				sprints, err := call(cmd.Context(), o, "job explain", &headroomv1.ListSprintsRequest{}, headroomv1connect.ClusterServiceClient.ListSprints)
				if err != nil {
					return err
				}
				item := explained(r, sprints)
				return o.print(cmd, &w, wrap("JobExplanation", r.GetMeta(), []explainedJob{item}), func(out io.Writer) error { return o.explainJobText(out, r, &item) })
			})
		},
	}
	w.Flags(cmd)
	return cmd
}

// explained is the answer of job explain.
func explained(r *headroomv1.ExplainJobResponse, sprints *headroomv1.ListSprintsResponse) explainedJob {
	j := r.GetJob()
	item := explainedJob{jobDetail: jobDetails([]*headroomv1.Job{j})[0], Moves: []jobMoveItem{}}
	for _, m := range r.GetMoves() {
		item.Moves = append(item.Moves, *jobMoveItemOf(m))
	}
	in := inputsItem{Theta: thetaOf(j), SprintDue: j.GetProgress().GetSprintDue(), Floor: j.GetFloor(), Budgets: []potItem{}}
	if p := j.GetProgress(); p != nil {
		in.SprintAfterS = p.SprintAfterS
	}
	if x := j.GetOutlook(); x != nil {
		in.CapShare = x.CapShare
	}
	for _, p := range potItems(sprints.GetDomains()) {
		if p.Class == nil || *p.Class == j.GetClass() {
			in.Budgets = append(in.Budgets, p)
		}
	}
	item.Inputs = in
	for _, p := range cli.Filled[sprintItem](sprints.GetSprints()) {
		if p.Job != nil && *p.Job == j.GetId() {
			item.Sprint = &p
		}
	}
	return item
}

// thetaOf is the drop ratio that a job runs with: the committed one, else what its scheduler says.
func thetaOf(j *headroomv1.Job) *float64 {
	if d := j.GetDeflation(); d != nil {
		return &d.Theta
	}
	if p := j.GetProgress(); p != nil {
		return p.Theta
	}
	return nil
}

func jobMoveItemOf(m *headroomv1.JobMove) *jobMoveItem {
	if m == nil {
		return nil
	}
	item := &jobMoveItem{Kind: moveName(m.GetKind()), Candidates: cli.Filled[candidateItem](m.GetCandidates())}
	cli.Fill(item, m)
	for i, c := range m.GetCandidates() {
		item.Candidates[i].Kind = moveName(c.GetKind())
	}
	return item
}

func deflationItemOf(d *headroomv1.Deflation) *deflationItem {
	if d == nil {
		return nil
	}
	item := &deflationItem{}
	cli.Fill(item, d)
	return item
}

// moveName is a move's kind in words.
func moveName(k headroomv1.MoveKind) string {
	return strings.ToLower(strings.TrimPrefix(k.String(), "MOVE_KIND_"))
}

// shownCost is what a move costs, in words.
func shownCost(m *headroomv1.JobMove) string {
	var words []string
	if m.CostUj != nil {
		words = append(words, shownJoules(m.GetCostUj()))
	}
	if m.CostQuality != nil {
		words = append(words, fmt.Sprintf("%.3g %% of its tasks", 100*m.GetCostQuality()))
	}
	if m.TimeS != nil {
		words = append(words, fmt.Sprintf("%+.0f s", m.GetTimeS()))
	}
	return cmp.Or(strings.Join(words, ", "), cli.Unknown)
}

// shownAnswer is what the scheduler said to what follows from a move.
func shownAnswer(m *headroomv1.JobMove) string {
	switch {
	case m.GetRefused() != "":
		return "refused: " + m.GetRefused()
	case m.GetAcknowledged():
		return "acknowledged"
	}
	return "not acknowledged yet"
}

// moveText is the part of job show about the move in force.
func moveText(j *headroomv1.Job) string {
	var b strings.Builder
	if j.DeadlineS != nil {
		fmt.Fprintf(&b, "  deadline   %s after it was submitted\n", cli.Age(time.Duration(j.GetDeadlineS()*float64(time.Second))))
	}
	b.WriteString(promiseText(j))
	if d := j.GetDeflation(); d != nil {
		fmt.Fprintf(&b, "  deflation  drop ratio %.4g by seed %d: %s\n", d.GetTheta(), d.GetSeed(), cmp.Or(d.GetReason(), cli.Unknown))
	}
	if p := j.GetProgress(); p != nil && p.SprintAfterS != nil {
		due := "not due"
		if p.GetSprintDue() {
			due = "due"
		}
		fmt.Fprintf(&b, "  sprint     %s after its dispatch, %s\n", cli.Age(time.Duration(p.GetSprintAfterS()*float64(time.Second))), due)
	}
	if m := j.GetOutlook().GetMove(); m != nil {
		fmt.Fprintf(&b, "  move       %s since %s: %s\n", moveName(m.GetKind()), shownTime(m.GetAtUs()), m.GetReason())
		fmt.Fprintf(&b, "  cost       %s; %s\n", shownCost(m), shownAnswer(m))
	}
	return b.String()
}

// promiseText is the part of job show about what was promised and about copies, as far as there is any.
func promiseText(j *headroomv1.Job) string {
	var b strings.Builder
	if a := j.GetAdmission(); a != nil {
		fmt.Fprintf(&b, "  admission  %s: %s\n", shownAdmission(a), cmp.Or(a.GetReason(), cli.Unknown))
	}
	if s := j.GetScaling(); s != nil {
		fmt.Fprintf(&b, "  scaling    %s\n", cli.ScalingText(s, "containers"))
	}
	p := j.GetProgress()
	if p.GetPromised() > 0 {
		fmt.Fprintf(&b, "  promised   %d containers\n", p.GetPromised())
	}
	if p != nil && p.Error != nil {
		fmt.Fprintf(&b, "  error      it ends once all but %s of its map tasks are done\n", units.Percent(p.GetError()))
	}
	if p.GetCopies() > 0 || p.GetCopiesWanted() > 0 {
		save := ""
		if p.CopiesSaveS != nil {
			save = fmt.Sprintf(", which would save %.0f s", p.GetCopiesSaveS())
		}
		fmt.Fprintf(&b, "  copies     %d run, %d more are wanted%s\n", p.GetCopies(), p.GetCopiesWanted(), save)
	}
	if p.GetWastedS() > 0 {
		fmt.Fprintf(&b, "  wasted     %.0f container seconds\n", p.GetWastedS())
	}
	return b.String()
}

// shownAdmission is what was decided about a job's deadline, with the moment that matters.
func shownAdmission(a *headroomv1.Admission) string {
	words := a.GetDecision()
	if a.GetSlots() > 0 {
		words += fmt.Sprintf(" with %d containers", a.GetSlots())
	}
	if a.FinishUs != nil {
		words += ", to end at " + shownTime(a.GetFinishUs())
	}
	if a.UntilUs != nil {
		words += ", until " + shownTime(a.GetUntilUs())
	}
	return words
}

// shownTime is the time of day of a moment in microseconds since the Unix epoch.
func shownTime(us int64) string { return time.UnixMicro(us).Local().Format(time.TimeOnly + " MST") }

// explainJobText is job explain for people.
func (o *operator) explainJobText(w io.Writer, r *headroomv1.ExplainJobResponse, item *explainedJob) error {
	j := r.GetJob()
	var b strings.Builder
	fmt.Fprintf(&b, "%s  (%s)  class %s, rank %d, %s\n", j.GetId(), j.GetName(), j.GetClass(), j.GetRank(), jobState(j.GetState()))
	b.WriteString(moveText(j))
	if j.GetOutlook().GetMove() == nil {
		fmt.Fprintf(&b, "  move       %s: %s\n", cli.Unknown, unmoved(j))
	}
	in := &item.Inputs
	part := func(x float64) string { return fmt.Sprintf("%.4g %%", 100*x) }
	fmt.Fprintf(&b, "  decided by drop ratio %s, sprint timer %s, floor %s, cap %s of full power, %s\n", cli.Opt(in.Theta, func(x float64) string { return fmt.Sprintf("%.4g", x) }),
		cli.Opt(in.SprintAfterS, shownSeconds), shownFloor(j), cli.Opt(in.CapShare, part), shownBudgets(in.Budgets))
	fmt.Fprintf(&b, "  finish     %s, uncapped %s\n", shownFinish(j), cli.Opt(uncapped(j), shownSeconds))
	if p := item.Sprint; p != nil {
		fmt.Fprintf(&b, "  sprints    %s, %s, %v put aside by %s\n", p.ID, p.State, units.FromJoules(p.EscrowJ), p.Domain)
	}
	if _, err := io.WriteString(w, b.String()+"\n"); err != nil {
		return err
	}
	if err := o.candidateTable(w, j.GetOutlook().GetMove().GetCandidates()); err != nil || len(r.GetMoves()) == 0 {
		return err
	}
	var rows [][]string
	for _, m := range r.GetMoves() {
		rows = append(rows, []string{shownTime(m.GetAtUs()), moveName(m.GetKind()), shownCost(m), shownAnswer(m), m.GetReason()})
	}
	return o.out.TableOf(w, cli.Table{Head: []string{"SINCE", "MOVE", "COST", "SCHEDULER", "REASON"}, Rows: rows, Noun: "move"})
}

// candidateTable is what could be done about a promise at risk, the best first; nothing while none is.
func (o *operator) candidateTable(w io.Writer, candidates []*headroomv1.Candidate) error {
	if len(candidates) == 0 {
		return nil
	}
	if _, err := io.WriteString(w, "its deadline is at risk; what could be done, by the weighted seconds that it saves:\n"); err != nil {
		return err
	}
	var rows [][]string
	for _, c := range candidates {
		chosen := "no"
		if c.GetChosen() {
			chosen = "yes"
		}
		cost := shownCost(&headroomv1.JobMove{CostUj: c.CostUj, CostQuality: c.CostQuality})
		rows = append(rows, []string{
			moveName(c.GetKind()), chosen, cli.Opt(c.TimeS, func(s float64) string { return fmt.Sprintf("%+.0f s", s) }), cost, fmt.Sprintf("%.3g", c.GetWorth()), c.GetWhy(),
		})
	}
	if err := o.out.Table(w, []string{"LEVER", "CHOSEN", "END", "COST", "WORTH", "WHY"}, rows); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// unmoved says why nothing is decided about a job.
func unmoved(j *headroomv1.Job) string {
	switch j.GetState() {
	case headroomv1.JobState_JOB_STATE_RUNNING:
		return "not decided yet; the job loop runs every 5 s"
	case headroomv1.JobState_JOB_STATE_QUEUED:
		if n := j.GetProgress().GetPlace(); n > 0 {
			return fmt.Sprintf("it waits, as number %d of its buffer", n)
		}
		return "it waits"
	case headroomv1.JobState_JOB_STATE_UNSPECIFIED, headroomv1.JobState_JOB_STATE_DONE, headroomv1.JobState_JOB_STATE_FAILED, headroomv1.JobState_JOB_STATE_CANCELLED:
	}
	return "it is over"
}

// shownBudgets are the pots that a job's class may sprint from.
func shownBudgets(pots []potItem) string {
	var words []string
	for _, p := range pots {
		words = append(words, fmt.Sprintf("%v of %v to sprint with in %s", units.FromJoules(p.BalanceJ), units.FromJoules(p.CapacityJ), p.Domain))
	}
	return cmp.Or(strings.Join(words, ", "), "no joules to sprint with")
}
