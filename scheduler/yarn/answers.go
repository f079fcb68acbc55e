package yarn

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"headroom/internal/config"
	"headroom/scheduler/profiles"
)

// The functions below read the answers of Hadoop 3's web services. They are strict about what the engine needs and
// ignore unknown fields. Every error states what was read and wraps errAnswer.

// Limits of the lists in one answer.
const (
	appsMax  = 10_000
	tasksMax = 100_000
	nodesMax = 20_000
	// textMax bounds a text of Hadoop for display.
	textMax = 300
)

// Properties of a job with which its owner raises the floor.
const (
	// propertyFloor is a minimum fraction of its map tasks.
	propertyFloor = "headroom.min-tasks"
	// propertyError is the fraction of its map tasks that its result may miss.
	propertyError = "headroom.error"
	// propertyQuality is a minimum accuracy of its result, by its profile.
	propertyQuality = "headroom.quality"
	// propertyProfile is the name of the profile; the default is the job's name.
	propertyProfile = "headroom.profile"
)

// app is an application in the list of the ResourceManager.
type app struct {
	id, name, user, queue string
	// state is YARN's state: NEW, NEW_SAVING, SUBMITTED, ACCEPTED, RUNNING, FINISHED, FAILED, KILLED.
	state string
	// final is the application's own result: UNDEFINED, SUCCEEDED, FAILED, KILLED.
	final       string
	diagnostics string
	started     time.Time
	// elapsed is its age by the ResourceManager's clock.
	elapsed time.Duration
	// launched and finished are zero before that.
	launched, finished time.Time
	// containers is how many it holds, including its master's.
	containers int
	// attempt is its newest attempt, "" before the first; master is the container of its master.
	attempt, master string
	// tags are its tags at submission.
	tags string
	// spark is whether it is Spark and not MapReduce.
	spark bool
}

func (a app) ended() bool { return slices.Contains(endStates(), a.state) }

func liveStates() []string { return []string{"NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING"} }

func endStates() []string { return []string{"FINISHED", "FAILED", "KILLED"} }

// appForm matches ids of applications; containerForm those of their containers, with an epoch after a restart of the
// ResourceManager.
var (
	appForm       = regexp.MustCompile(`^application_([0-9]{1,19})_([0-9]{4,10})$`)
	containerForm = regexp.MustCompile(`container_(?:e[0-9]{1,10}_)?([0-9]{1,19}_[0-9]{4,10})_([0-9]{2,10})_[0-9]{6,10}`)
	taskForm      = regexp.MustCompile(`^task_[0-9]{1,19}_[0-9]{4,10}_[mr]_([0-9]{6,10})$`)
	jobForm       = regexp.MustCompile(`^job_([0-9]{1,19}_[0-9]{4,10})$`)
)

// jobOf returns the MapReduce job of an application, appOf the reverse; "" for an invalid id.
func jobOf(app string) string { return "job_" + strings.TrimPrefix(app, "application_") }

func appOf(job string) string {
	m := jobForm.FindStringSubmatch(job)
	if m == nil {
		return ""
	}
	return "application_" + m[1]
}

// many is a list in Hadoop's JSON, in which a list of one element may be written without the list.
type many[T any] []T

// UnmarshalJSON reads a list, one entry without a list, or nothing.
func (m *many[T]) UnmarshalJSON(b []byte) error {
	switch {
	case bytes.Equal(b, []byte("null")):
		return nil
	case b[0] == '[':
		return json.Unmarshal(b, (*[]T)(m))
	default:
		var one T
		err := json.Unmarshal(b, &one)
		*m = append(*m, one)
		return err
	}
}

// read decodes exactly one JSON document.
func read(body []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	err := d.Decode(into)
	switch {
	case errors.Is(err, io.EOF) && len(bytes.TrimSpace(body)) == 0:
		return fmt.Errorf("empty: %w", errAnswer)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("truncated after %d bytes of JSON: %w", len(body), errAnswer)
	case err != nil:
		return fmt.Errorf("%w: %w", err, errAnswer)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("more than one JSON document: %w", errAnswer)
	}
	return nil
}

// wrong returns the error for an answer that is JSON but invalid.
func wrong(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), errAnswer)
}

type jsonApp struct {
	ID                string `json:"id"`
	Name              string `json:"name"`
	User              string `json:"user"`
	Queue             string `json:"queue"`
	State             string `json:"state"`
	FinalStatus       string `json:"finalStatus"`
	Diagnostics       string `json:"diagnostics"`
	ApplicationType   string `json:"applicationType"`
	StartedTime       int64  `json:"startedTime"`
	ElapsedTime       int64  `json:"elapsedTime"`
	LaunchTime        int64  `json:"launchTime"`
	FinishedTime      int64  `json:"finishedTime"`
	RunningContainers int    `json:"runningContainers"`
	AMContainerLogs   string `json:"amContainerLogs"`
	ApplicationTags   string `json:"applicationTags"`
	AllocatedVCores   int    `json:"allocatedVCores"`
}

// YARN's types of applications.
const (
	typeMapReduce = "MAPREDUCE"
	typeSpark     = "SPARK"
)

// readApps reads the answer of /ws/v1/cluster/apps: applications of MapReduce and Spark that no engine of ours started.
func readApps(body []byte) ([]app, error) {
	all, err := readJSONApps(body)
	if err != nil {
		return nil, err
	}
	apps := make([]app, 0, len(all))
	for _, j := range all {
		if (j.ApplicationType != typeMapReduce && j.ApplicationType != typeSpark) || j.tagged(ownTag) {
			continue
		}
		a, err := j.app()
		if err != nil {
			return nil, err
		}
		apps = append(apps, a)
	}
	return apps, nil
}

// readJSONApps reads the same answer without conversion.
func readJSONApps(body []byte) ([]jsonApp, error) {
	var answer struct {
		Apps *struct {
			App many[jsonApp] `json:"app"`
		} `json:"apps"`
	}
	if err := read(body, &answer); err != nil {
		return nil, err
	}
	if answer.Apps == nil {
		// Older releases write "apps": null for none; a document without it is something else.
		if !bytes.Contains(body, []byte(`"apps"`)) {
			return nil, wrong("no list of applications")
		}
		return nil, nil
	}
	if len(answer.Apps.App) > appsMax {
		return nil, wrong("%d applications; the maximum is %d", len(answer.Apps.App), appsMax)
	}
	return answer.Apps.App, nil
}

// readApp reads the answer of /ws/v1/cluster/apps/ID.
func readApp(body []byte) (app, error) {
	var answer struct {
		App *jsonApp `json:"app"`
	}
	if err := read(body, &answer); err != nil {
		return app{}, err
	}
	if answer.App == nil {
		return app{}, wrong("no application")
	}
	return answer.App.app()
}

func (j jsonApp) app() (app, error) {
	switch {
	case !appForm.MatchString(j.ID):
		return app{}, wrong("%q is not the id of an application", clip(j.ID))
	case !slices.Contains(liveStates(), j.State) && !slices.Contains(endStates(), j.State):
		return app{}, wrong("application %s in state %q", j.ID, clip(j.State))
	case j.Queue == "":
		return app{}, wrong("application %s in no queue", j.ID)
	case j.StartedTime <= 0:
		return app{}, wrong("application %s was submitted at %d", j.ID, j.StartedTime)
	}
	a := app{
		spark: j.ApplicationType == typeSpark,

		id: j.ID, name: clip(j.Name), user: clip(j.User), queue: fullName(j.Queue), state: j.State, final: j.FinalStatus, diagnostics: clip(withoutLine(j.Diagnostics)),
		started: time.UnixMilli(j.StartedTime), elapsed: time.Duration(max(0, j.ElapsedTime)) * time.Millisecond, containers: max(0, j.RunningContainers), // -1: no longer any
		tags: j.ApplicationTags, launched: moment(j.LaunchTime), finished: moment(j.FinishedTime),
	}
	if m := containerForm.FindStringSubmatch(j.AMContainerLogs); m != nil {
		if number, err := strconv.Atoi(m[2]); err == nil {
			a.master, a.attempt = m[0], fmt.Sprintf("appattempt_%s_%06d", m[1], number)
		}
	}
	return a, nil
}

// fullName returns the name of a queue from root: the capacity scheduler omits root.
func fullName(queue string) string {
	if queue == "root" || strings.HasPrefix(queue, "root.") {
		return queue
	}
	return "root." + queue
}

func moment(ms int64) time.Time {
	if ms <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// clip returns a text for display, in one line and of bounded length.
func clip(s string) string {
	s = strings.ToValidUTF8(strings.Join(strings.Fields(s), " "), "?")
	if len(s) > textMax {
		s = strings.ToValidUTF8(s[:textMax], "") + "..."
	}
	return s
}

// node is a NodeManager.
type node struct {
	address, state   string
	memoryMB, vcores int
}

// readNodes reads the answer of /ws/v1/cluster/nodes.
func readNodes(body []byte) ([]node, error) {
	type amount struct {
		Memory *int `json:"memory"`
		VCores *int `json:"vCores"`
	}
	var answer struct {
		Nodes *struct {
			Node many[struct {
				ID    string  `json:"id"`
				State string  `json:"state"`
				Total *amount `json:"totalResource"`
				// Releases before 3.1 have no totals.
				UsedMB     int `json:"usedMemoryMB"`
				FreeMB     int `json:"availMemoryMB"`
				UsedVCores int `json:"usedVirtualCores"`
				FreeVCores int `json:"availableVirtualCores"`
			}] `json:"node"`
		} `json:"nodes"`
	}
	if err := read(body, &answer); err != nil {
		return nil, err
	}
	if answer.Nodes == nil {
		if !bytes.Contains(body, []byte(`"nodes"`)) {
			return nil, wrong("no list of nodes")
		}
		return nil, nil
	}
	if len(answer.Nodes.Node) > nodesMax {
		return nil, wrong("%d nodes; the maximum is %d", len(answer.Nodes.Node), nodesMax)
	}
	var nodes []node
	for _, n := range answer.Nodes.Node {
		if n.ID == "" || n.State == "" {
			return nil, wrong("a node without id or state")
		}
		k := node{address: n.ID, state: n.State, memoryMB: n.UsedMB + n.FreeMB, vcores: n.UsedVCores + n.FreeVCores}
		if n.Total != nil && n.Total.Memory != nil && n.Total.VCores != nil {
			k.memoryMB, k.vcores = *n.Total.Memory, *n.Total.VCores
		}
		if k.memoryMB < 0 || k.vcores < 0 {
			return nil, wrong("node %s with %d MB and %d vcores", clip(n.ID), k.memoryMB, k.vcores)
		}
		nodes = append(nodes, k)
	}
	return nodes, nil
}

// jsonQueue is one queue of the fair scheduler, or of the capacity scheduler.
type jsonQueue struct {
	QueueName string `json:"queueName"`
	QueuePath string `json:"queuePath"`
	// Children are in childQueues (fair) or queues (capacity).
	ChildQueues *jsonQueues `json:"childQueues"`
	Queues      *jsonQueues `json:"queues"`
}

type jsonQueues struct {
	Queue many[jsonQueue] `json:"queue"`
}

// readQueues reads the names of all queues from the answer of /ws/v1/cluster/scheduler.
func readQueues(body []byte) (map[string]bool, error) {
	var answer struct {
		Scheduler *struct {
			Info *struct {
				jsonQueue

				Type string     `json:"type"`
				Root *jsonQueue `json:"rootQueue"`
			} `json:"schedulerInfo"`
		} `json:"scheduler"`
	}
	if err := read(body, &answer); err != nil {
		return nil, err
	}
	if answer.Scheduler == nil || answer.Scheduler.Info == nil {
		return nil, wrong("no scheduler")
	}
	info := answer.Scheduler.Info
	names := map[string]bool{}
	root := &info.jsonQueue
	if info.Root != nil {
		root = info.Root
	}
	root.names(names, "")
	if len(names) == 0 {
		return nil, wrong("scheduler %q without queues", clip(info.Type))
	}
	return names, nil
}

// names adds the full names of the queue and of those below it.
func (q *jsonQueue) names(into map[string]bool, parent string) {
	name := q.QueueName
	switch {
	case q.QueuePath != "":
		name = q.QueuePath
	case parent != "" && !strings.HasPrefix(name, parent+"."):
		name = parent + "." + name
	}
	if name == "" || len(into) > nodesMax {
		return
	}
	into[name] = true
	for _, below := range []*jsonQueues{q.ChildQueues, q.Queues} {
		if below == nil {
			continue
		}
		for i := range below.Queue {
			below.Queue[i].names(into, name)
		}
	}
}

// taskState is the state of a task.
type taskState uint8

const (
	// taskWaits has had no running attempt.
	taskWaits taskState = iota
	taskRuns
	taskSucceeded
	// taskEnded has failed or was killed permanently.
	taskEnded
)

// task is one map or reduce task of a job.
type task struct {
	state taskState
	// part is its progress, 0 to 1; -1 if the answer is invalid.
	part    float64
	started time.Time
}

// tasks are a job's, by their number.
type tasks struct {
	maps, reduces []task
}

// readTasks reads the answer of an application master's /tasks.
func readTasks(body []byte) (tasks, error) {
	var answer struct {
		Tasks *struct {
			Task many[struct {
				ID          string  `json:"id"`
				State       string  `json:"state"`
				Type        string  `json:"type"`
				Progress    float64 `json:"progress"`
				StartTime   int64   `json:"startTime"`
				ElapsedTime int64   `json:"elapsedTime"`
			}] `json:"task"`
		} `json:"tasks"`
	}
	if err := read(body, &answer); err != nil {
		return tasks{}, err
	}
	if answer.Tasks == nil {
		if !bytes.Contains(body, []byte(`"tasks"`)) {
			return tasks{}, wrong("no list of tasks")
		}
		return tasks{}, nil
	}
	list := answer.Tasks.Task
	if len(list) > tasksMax {
		return tasks{}, wrong("%d tasks; the maximum is %d", len(list), tasksMax)
	}
	all := map[string]map[int]task{"MAP": {}, "REDUCE": {}}
	for _, k := range list {
		m := taskForm.FindStringSubmatch(k.ID)
		if m == nil || all[k.Type] == nil {
			return tasks{}, wrong("%q of type %q is not a task", clip(k.ID), clip(k.Type))
		}
		state, err := taskStateOf(k.State)
		if err != nil {
			return tasks{}, fmt.Errorf("task %s: %w", k.ID, err)
		}
		number, err := strconv.Atoi(m[1])
		if err != nil || number >= len(list) {
			return tasks{}, wrong("task %s of %d", k.ID, len(list))
		}
		t := task{state: state, part: k.Progress / 100}
		if math.IsNaN(t.part) || t.part < 0 || t.part > 1 {
			t.part = -1 // a running attempt's own report: it affects only its task
		}
		if state != taskWaits {
			t.started = moment(k.StartTime)
		}
		all[k.Type][number] = t
	}
	var both tasks
	var err error
	if both.maps, err = inOrder(all["MAP"]); err != nil {
		return tasks{}, err
	}
	both.reduces, err = inOrder(all["REDUCE"])
	return both, err
}

// inOrder returns the tasks 0 to n-1; each must exist once.
func inOrder(byNumber map[int]task) ([]task, error) {
	list := make([]task, len(byNumber))
	for i := range list {
		t, ok := byNumber[i]
		if !ok {
			return nil, wrong("%d tasks, but none has number %d", len(byNumber), i)
		}
		list[i] = t
	}
	return list, nil
}

func taskStateOf(word string) (taskState, error) {
	switch word {
	case "NEW", "SCHEDULED":
		return taskWaits, nil
	case "RUNNING":
		return taskRuns, nil
	case "SUCCEEDED":
		return taskSucceeded, nil
	case "FAILED", "KILLED":
		return taskEnded, nil
	}
	return 0, wrong("state %q", clip(word))
}

// held are the containers of an application.
type held struct {
	// on is how many run on each NodeManager, running on all of them; without the master's.
	on      map[string]int
	running int
	// master is the size of the master's container, largest the size that contains every other running one; zero if
	// none is listed.
	master, largest Container
}

// readContainers reads the answer of /appattempts/ID/containers.
func readContainers(body []byte, master string) (h held, err error) {
	var answer *struct {
		Container many[struct {
			ContainerID string `json:"containerId"`
			NodeID      string `json:"nodeId"`
			State       string `json:"containerState"`
			// Hadoop writes these numbers as strings.
			MemoryMB json.Number `json:"allocatedMB"`
			VCores   json.Number `json:"allocatedVCores"`
		}] `json:"container"`
	}
	if err := read(body, &answer); err != nil {
		return held{}, err
	}
	h.on = map[string]int{}
	if answer == nil {
		return h, nil
	}
	if len(answer.Container) > tasksMax {
		return held{}, wrong("%d containers; the maximum is %d", len(answer.Container), tasksMax)
	}
	for _, k := range answer.Container {
		if !containerForm.MatchString(k.ContainerID) || k.NodeID == "" {
			return held{}, wrong("%q on %q is not a container", clip(k.ContainerID), clip(k.NodeID))
		}
		size := Container{MemoryMB: amount(k.MemoryMB, memoryMax), VCores: amount(k.VCores, vcoresMax)}
		switch {
		case k.ContainerID == master:
			h.master = size
		case k.State == "RUNNING":
			h.on[k.NodeID]++
			h.running++
			h.largest = Container{MemoryMB: max(h.largest.MemoryMB, size.MemoryMB), VCores: max(h.largest.VCores, size.VCores)}
		}
	}
	return h, nil
}

// amount returns a number from 0 to most; 0 if invalid.
func amount(n json.Number, most int64) int {
	x, err := n.Int64()
	if err != nil {
		return 0
	}
	return int(min(max(0, x), most))
}

// demand is the quality and service settings of a job: the properties above that are set, as written.
type demand map[string]string

// demanded returns the properties of a demand.
func demanded() []string {
	return []string{propertyFloor, propertyError, propertyQuality, propertyProfile, propertyClass, propertyDeadline, propertySprint, propertyDeflate}
}

// demandNames reports whether a property is part of a demand.
func demandNames(name string) bool {
	return slices.Contains(demanded(), name)
}

// readDemand reads the answer of an application master's /conf.
func readDemand(body []byte) (demand, error) {
	var answer struct {
		Conf *struct {
			Property many[struct {
				Name  string `json:"name"`
				Value string `json:"value"`
			}] `json:"property"`
		} `json:"conf"`
	}
	if err := read(body, &answer); err != nil {
		return nil, err
	}
	if answer.Conf == nil || len(answer.Conf.Property) == 0 {
		return nil, wrong("no configuration")
	}
	d := demand{}
	for _, p := range answer.Conf.Property {
		if demandNames(p.Name) {
			d[p.Name] = strings.TrimSpace(p.Value)
		}
	}
	return d, nil
}

// Tags of an application with which its owner sets a demand. A property of the job takes precedence over its tag.
const (
	tagDeadline = "headroom-deadline:"
	tagError    = "headroom-error:"
)

// tag adds the demands in the tags of the application.
func (d demand) tag(tags string) {
	for t := range strings.SplitSeq(tags, ",") {
		for prefix, property := range map[string]string{tagDeadline: propertyDeadline, tagError: propertyError} {
			if value, ok := strings.CutPrefix(strings.TrimSpace(t), prefix); ok && d[property] == "" {
				d[property] = value
			}
		}
	}
}

// error returns the fraction of its map tasks that its result may miss; 0 if invalid.
func (d demand) error() (float64, error) {
	return config.ParsePart(d[propertyError])
}

// errorBound returns the same; nil if it is missing or invalid.
func (d demand) errorBound() *float64 {
	x, err := d.error()
	if err != nil {
		return nil
	}
	return new(x)
}

// bounds returns the minimum fractions of the map tasks that the demand of a job of that name asks for. If a setting is
// invalid, all tasks are required.
func (d demand) bounds(name string, known *profiles.Folder) (all []profiles.Bound) {
	if least, ok := d[propertyFloor]; ok {
		why := propertyFloor + "=" + clip(least)
		x, err := config.ParseFraction(least)
		if err != nil {
			x, why = 1, why+": running all tasks, because the value is invalid; write 90% or 0.9"
		}
		all = append(all, profiles.Bound{Fraction: x, Why: why})
	}
	if most, ok := d[propertyError]; ok {
		why := propertyError + "=" + clip(most)
		x, err := d.error()
		if err != nil {
			why += ": running all tasks, because the value is invalid; write 5% or 0.05"
		}
		all = append(all, profiles.Bound{Fraction: 1 - x, Why: why})
	}
	least, asked := d[propertyQuality]
	profile, named := d[propertyProfile]
	switch {
	case asked:
		all = append(all, known.Bound(profiles.Accuracy{Key: propertyQuality + "=" + clip(least), Least: least, Profile: cmp.Or(profile, name)}))
	case named:
		all = append(all, profiles.Bound{Fraction: 1, Why: fmt.Sprintf("%s=%s: running all tasks, because %s is not set; add -D%s=90%%",
			propertyProfile, clip(profile), propertyQuality, propertyQuality)})
	}
	return all
}
