package clean

import (
	"log/slog"
	"os"
	"sync"
	"time"
)

type node struct {
	log    *slog.Logger
	events chan int
	queue  chan int
	wg     sync.WaitGroup
}

//headroom:control
func (n *node) turn(name string) {
	n.log.Info("turn") // the logger is given: internal/logs is behind it
	select {
	case n.events <- 1:
	default:
	}
	n.queue <- 1
	one := make(chan int, 1)
	one <- 1
	go n.store()
	n.wg.Go(func() { n.store() })
	_ = time.Second
}

func (n *node) store() { os.WriteFile("state.json", nil, 0) }

func unmarked() { time.Sleep(time.Second) }

func start() *node { return &node{events: make(chan int), queue: make(chan int, 8)} }
