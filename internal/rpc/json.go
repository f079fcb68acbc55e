package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
)

// jsonCodec reads and writes messages as JSON. A field that the message does not have, or
// has twice, is refused by its name: what a caller misspelt would else be missing from what is
// carried out. Every field is written, 0 and empty ones too; only what is unknown is absent.
type jsonCodec struct{ name string }

// Name implements connect.Codec: the part of the content type behind "application/".
func (c jsonCodec) Name() string { return c.name }

var errNoMessage = errors.New("not a message")

// Marshal implements connect.Codec.
func (c jsonCodec) Marshal(m any) ([]byte, error) {
	x, ok := m.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T: %w", m, errNoMessage)
	}
	return protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(x)
}

// Unmarshal implements connect.Codec.
func (c jsonCodec) Unmarshal(data []byte, m any) error {
	x, ok := m.(proto.Message)
	if !ok {
		return fmt.Errorf("%T: %w", m, errNoMessage)
	}
	if err := protojson.Unmarshal(data, x); err != nil {
		// protojson varies the space behind its name on purpose; ours is always the same.
		text := strings.TrimSpace(strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto:"))
		return errors.New(text + "; docs/api.md lists the fields of " + string(x.ProtoReflect().Descriptor().Name()))
	}
	return nil
}

// LongestRequestID bounds an idempotency key, in bytes.
const LongestRequestID = 256

// boundKeys refuses idempotency keys that are too long, in every program alike.
func boundKeys(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		x, ok := r.Any().(interface{ GetChange() *headroomv1.Change })
		if ok && !r.Spec().IsClient && len(x.GetChange().GetRequestId()) > LongestRequestID {
			return nil, Refuse(connect.CodeInvalidArgument, "usage", cli.ExitUsage,
				fmt.Sprintf("request_id has %d bytes, the maximum is %d", len(x.GetChange().GetRequestId()), LongestRequestID), "nothing was changed; use a shorter --request-id, or none")
		}
		return next(ctx, r)
	}
}
