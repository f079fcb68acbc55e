package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/each"
	"headroom/internal/pause"
)

const logsLong = `Print what a job wrote: the standard error of its tasks, or both outputs of its Spark driver. The outputs of tasks are its
result. Of each attempt of a task the first 64 KiB and the last 2 KiB are kept, beside the outputs; of a driver the newest
4 MiB at least. The job's submitter and operators may read them. YARN keeps the logs of its applications.`

// logLook is how often --follow asks for more.
const logLook = time.Second

func logsCommand(path string) *cobra.Command {
	var (
		w      jobWait
		task   int
		follow bool
	)
	cmd := &cobra.Command{
		Use:     "logs ID",
		Short:   "Print what a job's tasks or driver wrote",
		Long:    logsLong,
		Example: "  " + path + " words-7f3a90c1\n  " + path + " words-7f3a90c1 --task 3 --follow",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: w.to.jobIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &headroomv1.LogsRequest{Id: args[0], Read: map[string]uint64{}}
			if cmd.Flags().Changed("task") {
				if task < 0 {
					return cli.Usage("--task is %d; tasks are numbered from 0", task)
				}
				req.Task = new(uint32(task))
			}
			w.notes, w.began = cmd.ErrOrStderr(), time.Now()
			return w.logs(cmd.Context(), cmd.OutOrStdout(), req, follow)
		},
	}
	w.to.flags(cmd)
	w.out.Flags(cmd)
	cmd.Flags().IntVar(&task, "task", 0, "only this map task, from 0 (default all)")
	cmd.Flags().BoolVar(&follow, "follow", false, "print what is written until the job ends")
	return cmd
}

// logs prints the logs of a job, until it ends if follow is set. A scheduler that is replaced meanwhile does not end it.
func (w *jobWait) logs(ctx context.Context, to io.Writer, req *headroomv1.LogsRequest, follow bool) error {
	p := logPrinter{out: &w.out, to: to, texts: map[string]*bytes.Buffer{}}
	for {
		resp, err := ask(ctx, &w.to, doingLogs, headroomv1connect.SchedulerServiceClient.Logs, req)
		if err != nil && (!follow || ctx.Err() != nil || !w.bears(err)) {
			return err
		}
		if err == nil {
			w.heard = time.Now()
		}
		for _, part := range resp.GetParts() {
			req.Read[part.GetName()] = part.GetFrom() + uint64(len(part.GetText()))
			if err := p.print(part); err != nil {
				return err
			}
		}
		if err == nil && !resp.GetMore() && (resp.GetEnded() || !follow) {
			break
		}
		if !resp.GetMore() && !pause.For(ctx, logLook) {
			return ctx.Err()
		}
	}
	if len(req.GetRead()) == 0 && w.out.IsTable() {
		cli.Notef(w.notes, "job %s has written nothing", req.GetId())
	}
	return p.document()
}

// logPrinter prints parts of logs, each log under its name.
type logPrinter struct {
	out  *cli.Output
	to   io.Writer
	last string
	// names and texts are the logs so far, for one document of all.
	names []string
	texts map[string]*bytes.Buffer
}

func (p *logPrinter) print(part *headroomv1.LogPart) error {
	name := part.GetName()
	if p.out.IsJSON() {
		if p.texts[name] == nil {
			p.names, p.texts[name] = append(p.names, name), &bytes.Buffer{}
		}
		_, err := p.texts[name].Write(part.GetText())
		return err
	}
	if name != p.last {
		if _, err := fmt.Fprintf(p.to, "==> %s <==\n", logTitle(name)); err != nil {
			return err
		}
		p.last = name
	}
	_, err := p.to.Write(part.GetText())
	if n := len(part.GetText()); err == nil && n > 0 && part.GetText()[n-1] != '\n' {
		_, err = io.WriteString(p.to, "\n")
	}
	return err
}

// jsonLog is a log in -o json.
type jsonLog struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

func (p *logPrinter) document() error {
	if !p.out.IsJSON() {
		return nil
	}
	items := each.Of(p.names, func(name string) any {
		return jsonLog{logTitle(name), strings.ToValidUTF8(p.texts[name].String(), "\uFFFD")}
	})
	return p.out.JSON(p.to, envelope("LogList", items))
}

// logTitle is the name of a log in words: "map-00003, attempt 00000001".
func logTitle(name string) string {
	if m := regexp.MustCompile(`^log-(.+)-([0-9a-f]{8})$`).FindStringSubmatch(name); m != nil {
		return m[1] + ", attempt " + m[2]
	}
	return name
}
