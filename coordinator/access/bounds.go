package access

import (
	"context"
	"errors"
	"fmt"
	"math"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/ledger"
)

const (
	// LongestText bounds a text of a request, in bytes: texts stay in the audit log.
	LongestText = 16 << 10
	// longestBytes bounds binary data of a request: a job's file.
	longestBytes = ledger.MaxJobSpec
	// MostItems bounds a list of a request: it may name every node once.
	MostItems = ledger.MaxNodes
	// LongestRequest bounds one request: a sprint that names every node, a report of every job.
	LongestRequest = 2 << 20
	// LongestReport bounds a report of a node: the newest of each node is kept.
	LongestReport = 256 << 10
)

// Bounds refuses messages with texts or lists that are too long, and invalid numbers,
// before they are handled.
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

// boundedConn checks every message received on a stream.
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

// bounded returns an error that names the field of a message that exceeds the bounds.
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
		return named(x)
	}
	return rpc.Refuse(connect.CodeInvalidArgument, "usage", cli.ExitUsage, text, "nothing was changed; send fewer or shorter values, and finite numbers")
}

// named refuses a change that names no domain: what was left out, or misspelt, must not become
// the whole site. A command fills in the root.
func named(m proto.Message) error {
	type about interface{ GetDomain() string }
	var one about
	switch x := m.(type) {
	case *headroomv1.SetBudgetRequest:
		one = x
	case *headroomv1.ReportMeterRequest:
		one = x
	case *headroomv1.ChangeRequest:
		switch w := x.GetWhat().(type) {
		case *headroomv1.ChangeRequest_SetSchedule:
			one = w.SetSchedule
		case *headroomv1.ChangeRequest_SetSprintBudget:
			one = w.SetSprintBudget
		case *headroomv1.ChangeRequest_GrantSprint:
			one = w.GrantSprint
		}
	}
	if one == nil || one.GetDomain() != "" {
		return nil
	}
	return rpc.Refuse(connect.CodeInvalidArgument, "usage", cli.ExitUsage, "domain is empty: a change names its domain",
		"nothing was changed; coordinator budget show lists the domains, the first is the whole site")
}

// beyond describes why a field exceeds the bounds; empty if it does not.
func beyond(f protoreflect.FieldDescriptor, v protoreflect.Value) string {
	switch {
	case f.IsList():
		list := v.List()
		if list.Len() > MostItems {
			return fmt.Sprintf("%s has %d entries, the maximum is %d", f.Name(), list.Len(), MostItems)
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
		return fmt.Sprintf("%s has %d entries, the maximum is %d", f.Name(), m.Len(), MostItems)
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
			return fmt.Sprintf("%s has %d bytes, the maximum is %d", f.Name(), n, LongestText)
		}
	case protoreflect.BytesKind:
		if n := len(v.Bytes()); n > longestBytes {
			return fmt.Sprintf("%s has %d bytes, the maximum is %d", f.Name(), n, longestBytes)
		}
	case protoreflect.DoubleKind, protoreflect.FloatKind:
		if x := v.Float(); math.IsNaN(x) || math.IsInf(x, 0) {
			return fmt.Sprintf("%s is %v, which is not a finite number", f.Name(), x)
		}
	case protoreflect.MessageKind:
		v.Message().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			text = beyond(f, v)
			return text == ""
		})
	}
	return text
}
