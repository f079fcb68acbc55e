package local

// A scheduler or master whose certificate is denied is refused after a restart of the worker too.

import (
	"log/slog"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/testkit"
)

func TestWorkerKeepsDenials(t *testing.T) {
	t.Parallel()
	cfg := Config{Node: "n01", Schedulers: []string{"127.0.0.1:1"}, Slots: 1, Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}
	open := func() *Worker {
		return testkit.Need(New(cfg))(t)
	}
	w := open()
	w.handle(t.Context(), &headroomv1.WorkMessage{Message: &headroomv1.WorkMessage_Denied{Denied: &headroomv1.Denials{Denied: []*headroomv1.Denial{
		{Identity: "scheduler/s1", AtUs: time.Now().UnixMicro()}, {Identity: "master/m1", AtUs: 1}, {Identity: "submitter/eve", AtUs: 1}, {Serial: "3F:9A"},
	}}}})
	for _, w := range []*Worker{w, open()} {
		if all := w.denials.All(); len(all) != 3 || all[0].Serial != "3f9a" || all[1].Identity != "master/m1" || all[2].Identity != "scheduler/s1" {
			t.Errorf("knows %+v", all)
		}
	}
}
