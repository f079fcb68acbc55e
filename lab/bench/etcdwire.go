package bench

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// The few messages of etcd's v3 API that the peer of `bench cluster` needs, by hand
// (etcd's api/etcdserverpb/rpc.proto): its Go client would bring grpc-go and a dozen modules
// for four calls. The calls themselves are gRPC, as etcd's own client makes them: its
// gateway for JSON would have etcd pay for a translation.
const (
	etcdGrantPath     = "/etcdserverpb.Lease/LeaseGrant"
	etcdKeepAlivePath = "/etcdserverpb.Lease/LeaseKeepAlive"
	etcdTxnPath       = "/etcdserverpb.KV/Txn"
)

// message is an encoded message.
type message struct{ data []byte }

// asIs is a codec for messages that are encoded already. Its name makes the
// content type that gRPC servers expect.
type asIs struct{}

// Name implements connect.Codec.
func (asIs) Name() string { return "proto" }

// Marshal implements connect.Codec.
func (asIs) Marshal(v any) ([]byte, error) {
	m, ok := v.(*message)
	if !ok {
		return nil, fmt.Errorf("bench: etcd: %T: %w", v, errNotSo)
	}
	return m.data, nil
}

// Unmarshal implements connect.Codec.
func (asIs) Unmarshal(data []byte, v any) error {
	m, ok := v.(*message)
	if !ok {
		return fmt.Errorf("bench: etcd: %T: %w", v, errNotSo)
	}
	m.data = append([]byte(nil), data...)
	return nil
}

// number and text append one field.
func number(b []byte, field protowire.Number, v int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(v))
}

func text(b []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}

// grantRequest asks for a lease: LeaseGrantRequest{TTL = 1 in s, ID = 2}.
func grantRequest(id, seconds int64) *message {
	return &message{number(number(nil, 1, seconds), 2, id)}
}

// keepAliveRequest renews one: LeaseKeepAliveRequest{ID = 1}.
func keepAliveRequest(id int64) *message { return &message{number(nil, 1, id)} }

// putOp is RequestOp{request_put = 2: PutRequest{key = 1, value = 2, lease = 3}}.
func putOp(key string, value []byte, lease int64) []byte {
	return text(nil, 2, number(text(text(nil, 1, []byte(key)), 2, value), 3, lease))
}

// rangeOp is RequestOp{request_range = 1: RangeRequest{key = 1}}.
func rangeOp(key string) []byte { return text(nil, 1, text(nil, 1, []byte(key))) }

// existsCompare is Compare{result = 1: GREATER, target = 2: VERSION, key = 3, version = 4: 0}.
func existsCompare(key string) []byte {
	return number(text(number(number(nil, 1, 1), 2, 0), 3, []byte(key)), 4, 0)
}

// txnRequest is TxnRequest{compare = 1, success = 2}.
func txnRequest(compare []byte, success ...[]byte) *message {
	var b []byte
	if compare != nil {
		b = text(b, 1, compare)
	}
	for _, op := range success {
		b = text(b, 2, op)
	}
	return &message{b}
}

// field is the first value of a field in a message, as a number, and whether it has one.
func (m *message) field(want protowire.Number) (uint64, bool) {
	for b := m.data; len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return 0, false
		}
		b = b[n:]
		if num == want && typ == protowire.VarintType {
			v, n := protowire.ConsumeVarint(b)
			return v, n > 0
		}
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return 0, false
		}
		b = b[n:]
	}
	return 0, false
}
