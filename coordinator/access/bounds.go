package access

import (
	"context"
	"errors"
	"fmt"
	"math"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/ledger"
)

const (
	// LongestText bounds a text of a request, bytes. Much of what is said stays: in
	// the audit log, in a thousand lines of it.
	LongestText = 16 << 10
	// longestBytes bounds what a request holds that is no text: a job's file.
	longestBytes = ledger.MaxJobSpec
	// MostItems bounds a list of a request: it may name every node once.
	MostItems = ledger.MaxNodes
	// LongestRequest bounds one request: a sprint that names every node, a report of every job.
	LongestRequest = 2 << 20
	// LongestReport bounds what a node says at once: the newest of each node is kept.
	LongestReport = 256 << 10
)

// Bounds refuses what nobody sends who means well, before anything is made of it:
// texts and lists without end, and numbers that are none.
type Bounds struct{}

// WrapUnary implements connect.Interceptor.
func (Bounds) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		if err := bounded(r.Any()); err != nil {
			return nil, err
		}
		return next(ctx, r)
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (Bounds) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor.
func (Bounds) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, c connect.StreamingHandlerConn) error {
		return next(ctx, boundedConn{c})
	}
}

// boundedConn looks at each message that comes on a stream.
type boundedConn struct{ connect.StreamingHandlerConn }

// Receive implements connect.StreamingHandlerConn.
func (c boundedConn) Receive(m any) error {
	err := c.StreamingHandlerConn.Receive(m)
	if e, ok := errors.AsType[*connect.Error](err); ok && e.Code() == connect.CodeInternal {
		return connect.NewError(connect.CodeInvalidArgument, errors.New(e.Message())) // a torn message is its sender's fault
	}
	if err != nil {
		return err
	}
	return bounded(m)
}

// bounded says what is beyond the bounds in a message, naming the field.
func bounded(m any) error {
	x, ok := m.(proto.Message)
	if !ok {
		return nil
	}
	text := ""
	x.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		text = beyond(f, v)
		return text == ""
	})
	if text == "" {
		return nil
	}
	return rpc.Refuse(connect.CodeInvalidArgument, "usage", cli.ExitUsage, text, "nothing was changed; send less, and numbers that are finite")
}

// beyond is what is wrong with a field and what is in it, in words; empty when nothing is.
func beyond(f protoreflect.FieldDescriptor, v protoreflect.Value) string {
	switch {
	case f.IsList():
		list := v.List()
		if list.Len() > MostItems {
			return fmt.Sprintf("%s names %d, at most %d are taken", f.Name(), list.Len(), MostItems)
		}
		for i := range list.Len() {
			if text := beyondOne(f, list.Get(i)); text != "" {
				return text
			}
		}
		return ""
	case f.IsMap():
		return beyondMap(f, v.Map())
	}
	return beyondOne(f, v)
}

func beyondMap(f protoreflect.FieldDescriptor, m protoreflect.Map) (text string) {
	if m.Len() > MostItems {
		return fmt.Sprintf("%s names %d, at most %d are taken", f.Name(), m.Len(), MostItems)
	}
	m.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		if text = beyondOne(f.MapKey(), k.Value()); text == "" {
			text = beyondOne(f.MapValue(), v)
		}
		return text == ""
	})
	return text
}

func beyondOne(f protoreflect.FieldDescriptor, v protoreflect.Value) (text string) {
	switch f.Kind() { //nolint:exhaustive // the other kinds have no bounds of their own
	case protoreflect.StringKind:
		if n := len(v.String()); n > LongestText {
			return fmt.Sprintf("%s has %d bytes, at most %d are taken", f.Name(), n, LongestText)
		}
	case protoreflect.BytesKind:
		if n := len(v.Bytes()); n > longestBytes {
			return fmt.Sprintf("%s has %d bytes, at most %d are taken", f.Name(), n, longestBytes)
		}
	case protoreflect.DoubleKind, protoreflect.FloatKind:
		if x := v.Float(); math.IsNaN(x) || math.IsInf(x, 0) {
			return fmt.Sprintf("%s is %v, which is no number", f.Name(), x)
		}
	case protoreflect.MessageKind:
		v.Message().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			text = beyond(f, v)
			return text == ""
		})
	}
	return text
}
