package spark

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"
)

// A driver in cluster mode lives in a container of YARN: what the supervisor holds is only
// spark-submit, which waits for it. So the application's tag, written down before it is
// submitted, is what it is found by, and its state in YARN is what its end is known by.

// tagPrefix begins the tags of all runs. YARN keeps tags in lower case.
const tagPrefix = "headroom-run-"

const (
	// followEvery is how often YARN is asked for an application whose spark-submit has ended
	// or that is to end.
	followEvery = time.Second
	// absentAfter is how long no application carries the tag, after spark-submit has ended,
	// until there is none: one may be on its way to the ResourceManager.
	absentAfter = 5 * time.Second
)

// place decides what of a run must be known before it starts: its tag in YARN, the port of
// its driver's REST interface. It writes the token's file for a driver that another machine runs.
func (e *Engine) place(x *execution) error {
	if e.cfg.OnYARN() {
		x.tag, x.managed = tagPrefix+strings.ToLower(rand.Text()), e.cfg.cluster()
	} else if x.run.Spec.Conf[uiKey] != "false" {
		if x.ui = number(x.run.Spec.Conf[uiPortKey]); x.ui == 0 {
			x.ui = freePort()
		}
	}
	if e.cfg.cluster() {
		return renameio.WriteFile(filepath.Join(x.run.Folder, tokenFile), []byte(x.token+"\n"), 0o600)
	}
	return nil
}

// environment returns what a run's driver has beside the scheduler's own.
func (e *Engine) environment(x *execution) []string {
	env := []string{"SPARK_HOME=" + e.cfg.Home, tokenEnv + "=" + x.token}
	if e.cfg.OnYARN() {
		env = append(env, "HADOOP_CONF_DIR="+e.cfg.HadoopConf, "YARN_CONF_DIR="+e.cfg.HadoopConf)
	}
	return env
}

// managed follows the application of a run that YARN holds.
type managed struct {
	engine *Engine
	x      *execution
	next   time.Time
	// left is when spark-submit was seen to be gone; told reports that it was told to end.
	left time.Time
	told bool
}

// kill ends the application where there is one: spark-submit then ends by itself. Before it
// has submitted anything, and when YARN does not answer, spark-submit is told to end.
func (m *managed) kill(ctx context.Context, now time.Time) {
	if now.Before(m.next) {
		return
	}
	m.next = now.Add(followEvery)
	if a, found, err := m.find(ctx); err == nil && found && !a.Over {
		m.end(ctx, a.ID)
		return
	}
	if !m.told {
		m.told = m.x.tell() == nil
	}
}

// over reports whether the application has ended, after spark-submit has: then how is told.
func (m *managed) over(ctx context.Context, now time.Time, killed bool) (Ended, bool) {
	if m.left.IsZero() {
		m.left = now
		if ended := m.x.ended(nil); ended.OK {
			return ended, true // spark-submit saw it succeed
		}
	}
	if now.Before(m.next) {
		return Ended{}, false
	}
	m.next = now.Add(followEvery)
	a, found, err := m.find(ctx)
	switch {
	case err != nil:
		return Ended{}, false
	case !found:
		return m.x.ended(nil), now.Sub(m.left) >= absentAfter
	case !a.Over:
		if killed {
			m.end(ctx, a.ID)
		}
		return Ended{}, false
	case a.OK:
		return Ended{OK: true, Outcome: a.Words}, true
	default:
		return Ended{Killed: killed, Outcome: a.ID + ": " + a.Words}, true
	}
}

func (m *managed) find(ctx context.Context) (Application, bool, error) {
	one, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	a, found, err := m.engine.manager.Find(one, m.x.tag)
	if err != nil {
		m.engine.logger.Debug("YARN did not answer about a Spark driver", slog.String("job", m.x.run.Job), slog.Any("error", err))
	}
	return a, found, err
}

func (m *managed) end(ctx context.Context, id string) {
	one, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	if err := m.engine.manager.Kill(one, id); err != nil {
		m.engine.logger.Warn("YARN did not kill a Spark driver", slog.String("job", m.x.run.Job), slog.String("application", id), slog.Any("error", err))
	}
}

// forget removes the token of a run that is over.
func (x *execution) forget() error {
	err := os.Remove(filepath.Join(x.run.Folder, tokenFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
