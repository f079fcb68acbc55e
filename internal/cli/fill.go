package cli

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Fill fills a struct, whose json tags are the JSON that we document, with what a message
// says. A field takes the message's field of its name, in base units: cap_w is cap_uw,
// spent_j spent_uj, remaining_s remaining_ms, freq_hz freq_khz, temp_c temp_mc, and
// saved_at, or at, the time of saved_us, or at_us: a string of an int64 is a time. The tag of:"settings.bmc" names another
// one, of:"." the message itself, and of:"-" a field that the caller fills.
//
// A pointer is nil, null in JSON, where the message does not have the field: where it is
// not set, or, of fields that cannot be unset, where it is 0 or "". Lists and maps are
// empty, never null. It panics when a field has no source or one of another kind, which
// is a mistake in the struct and the same for every message.
func Fill(into any, from proto.Message) {
	fillStruct(reflect.ValueOf(into).Elem(), from.ProtoReflect())
}

// Filled are structs that are filled with messages, one with each; never nil.
func Filled[T any, M proto.Message](from []M) []T {
	all := make([]T, len(from))
	for i, m := range from {
		Fill(&all[i], m)
	}
	return all
}

func fillStruct(into reflect.Value, from protoreflect.Message) {
	for i := range into.NumField() {
		f := into.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch of := f.Tag.Get("of"); of {
		case "-":
		case ".":
			fillStruct(into.Field(i), from)
		default:
			fillField(into.Field(i), sourceOf(from, name, of, f))
		}
	}
}

// source is a field of a message, and how many of its unit make one of ours.
type source struct {
	message protoreflect.Message
	field   protoreflect.FieldDescriptor
	scale   float64
}

// set reports whether there is a value; 0 and "" are none where a field cannot be unset.
func (s source) set() bool { return s.message.Has(s.field) }

func sourceOf(from protoreflect.Message, name, of string, f reflect.StructField) source {
	if of == "" {
		of = name
	} else {
		parts := strings.Split(of, ".")
		for _, p := range parts[:len(parts)-1] {
			from = from.Get(from.Descriptor().Fields().ByName(protoreflect.Name(p))).Message()
		}
		of = parts[len(parts)-1]
	}
	fields := from.Descriptor().Fields()
	if d := fields.ByName(protoreflect.Name(of)); d != nil {
		return source{message: from, field: d, scale: scaleOf(name, of)}
	}
	for _, u := range jsonUnits() {
		base, ok := strings.CutSuffix(of, u.ours)
		if d := fields.ByName(protoreflect.Name(base + u.theirs)); ok && d != nil {
			return source{message: from, field: d, scale: u.scale}
		}
	}
	panic(fmt.Sprintf("cli: %s has no field for %s (%s)", from.Descriptor().FullName(), f.Name, of))
}

// unit is what a name ends with in our JSON and in messages, and how many of theirs make
// one of ours.
type unit struct {
	ours, theirs string
	scale        float64
}

func jsonUnits() []unit {
	return []unit{
		{"_w", "_uw", 1e6},
		{"_j", "_uj", 1e6},
		{"_s", "_ms", 1e3},
		{"_s", "_us", 1e6},
		{"_hz", "_khz", 1e-3},
		{"_c", "_mc", 1e3},
		{"_at", "_us", 1},
		{"at", "at_us", 1},
	}
}

// scaleOf is how many of the unit at the end of their name make one of ours.
func scaleOf(ours, theirs string) float64 {
	for _, u := range jsonUnits() {
		if strings.HasSuffix(ours, u.ours) && strings.HasSuffix(theirs, u.theirs) {
			return u.scale
		}
	}
	return 1
}

func fillField(into reflect.Value, s source) {
	if into.Kind() == reflect.Pointer {
		if !s.set() {
			return
		}
		into.Set(reflect.New(into.Type().Elem()))
		into = into.Elem()
	}
	value := s.message.Get(s.field)
	switch {
	case s.field.IsList():
		fillList(into, value.List())
	case s.field.IsMap():
		into.Set(reflect.MakeMap(into.Type()))
		value.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			into.SetMapIndex(reflect.ValueOf(k.Interface()), reflect.ValueOf(v.Interface()))
			return true
		})
	case into.Kind() == reflect.String && s.field.Kind() == protoreflect.Int64Kind:
		into.SetString(time.UnixMicro(value.Int()).UTC().Format(time.RFC3339Nano))
	case into.Kind() == reflect.Struct:
		fillStruct(into, value.Message())
	case into.Kind() == reflect.Float64:
		into.SetFloat(scaled(value.Interface(), s.scale))
	default:
		into.Set(reflect.ValueOf(value.Interface()))
	}
}

func fillList(into reflect.Value, list protoreflect.List) {
	into.Set(reflect.MakeSlice(into.Type(), list.Len(), list.Len()))
	for i := range list.Len() {
		if into.Index(i).Kind() == reflect.Struct {
			fillStruct(into.Index(i), list.Get(i).Message())
		} else {
			into.Index(i).Set(reflect.ValueOf(list.Get(i).Interface()))
		}
	}
}

// scaled is a number in our unit. It divides, for a quotient is rounded but once.
func scaled(value any, scale float64) float64 {
	v := reflect.ValueOf(value)
	var x float64
	switch {
	case v.CanInt():
		x = float64(v.Int())
	case v.CanUint():
		x = float64(v.Uint())
	default:
		x = v.Float()
	}
	if scale < 1 {
		return x * (1 / scale)
	}
	return x / scale
}
