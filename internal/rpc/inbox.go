package rpc

import (
	"context"
	"errors"
	"io"
)

// Inbox passes on what a stream receives, until the stream or ctx ends; then inbox is closed,
// after the reason was put into broken. As many messages as room may wait.
func Inbox[M any](ctx context.Context, room int, receive func() (*M, error)) (inbox <-chan *M, broken <-chan error) {
	in, end := make(chan *M, room), make(chan error, 1)
	go func() {
		defer close(in)
		for {
			m, err := receive()
			if err != nil {
				end <- err
				return
			}
			select {
			case in <- m:
			case <-ctx.Done():
				end <- ctx.Err()
				return
			}
		}
	}()
	return in, end
}

// Reason returns why a stream ended on which sending has failed: for io.EOF the receiver of
// Inbox has the reason.
func Reason[M any](sent error, inbox <-chan *M, broken <-chan error) error {
	if !errors.Is(sent, io.EOF) {
		return sent
	}
	for range inbox {
		continue // nobody waits for it any longer
	}
	return <-broken
}
