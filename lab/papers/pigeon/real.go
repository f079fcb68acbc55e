package pigeon

import (
	"github.com/spf13/pflag"

	"headroom/lab/dispatch/live"
	"headroom/lab/papers"
)

// addReal adds the engines: "replay" replays traces in real time on 120 workers whose tasks sleep, "local" compares two
// splits of tasks on nodes of which half are capped.
func addReal(s *papers.Study, o *papers.Options) {
	replay := &live.Options{}
	s.Engines = map[string]papers.Engine{"local": live.Capped(o), "replay": live.Engine(replay)}
	s.Flags = func(f *pflag.FlagSet) {
		f.StringVar(&o.Bin, "bin", "", "with --engine: folder of the programs (default: next to powerlab)")
		replay.Flags(f)
	}
	s.Check = func() error {
		if o.Engine() != "replay" {
			return nil
		}
		replay.Traces, replay.Out, replay.Bin, replay.Seed = &o.Traces, o.Out, o.Bin, o.Seed
		return replay.Check()
	}
}
