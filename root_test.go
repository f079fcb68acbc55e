// Claims: every package explains itself and every exported name is documented;
// imports point down only; powerd starts no programs, but the one that an operator
// has it measure, and links neither raft nor the lab; pure packages do no I/O and start no goroutine.
package headroom_test

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"headroom/internal/testkit"
)

const module = "headroom"

// A layer is a level of the architecture; docs/architecture.md lists them.
type layer int

const (
	unknown  layer = iota
	pure           // decisions: no I/O, no goroutine, the time is an argument
	contract       // api: generated
	shared         // internal: small seams
	device         // kernel and firmware interfaces
	edge           // processes' bodies
	lab            // for people who study or try the system
	program        // cmd: wiring only
	front          // the repository's own folder and tests across packages
)

// layers returns the layer of each top-level folder. A new folder gets a
// line here before it gets code.
func layers() map[string]layer {
	return map[string]layer{
		"units": pure, "capping": pure, "lease": pure, "budget": pure, "ledger": pure, "progress": pure,
		"jobs": pure,
		"api":  contract, "internal": shared,
		"rapl": device, "dvfs": device, "ipmi": device, "systemd": device, "thermal": device,
		"agent": edge, "coordinator": edge, "scheduler": edge, "consensus": edge, "gossip": edge,
		"lab": lab,
		"cmd": program, "": front,
	}
}

// foldersMost bounds the top level, so that a reader can survey it.
const foldersMost = 26

func TestTopLevelIsSmall(t *testing.T) {
	t.Parallel()
	folders := map[string]bool{}
	for _, f := range tracked(t) {
		if top, _, below := strings.Cut(f, "/"); below && !strings.HasPrefix(top, ".") {
			folders[top] = true
		}
	}
	if len(folders) > foldersMost {
		t.Errorf("%d top-level folders, at most %d: %v", len(folders), foldersMost, slices.Sorted(maps.Keys(folders)))
	}
}

// below returns the layers that each layer may import beside itself.
func below() map[layer][]layer {
	return map[layer][]layer{
		pure:     {},
		contract: {},
		shared:   {pure, contract},
		device:   {pure, shared},
		edge:     {pure, contract, shared, device},
		lab:      {pure, contract, shared, device, edge},
		program:  {pure, contract, shared, device, edge, lab},
		front:    {pure, contract, shared, device, edge, lab},
	}
}

// edgesMet are the only edges that import another edge.
func edgesMet() map[string][]string {
	return map[string][]string{"coordinator": {"consensus", "gossip"}, "agent": {"gossip"}}
}

// devicesMet are the packages of one device that another may import: the files of
// a sysfs tree are opened, read and written by one piece of code.
func devicesMet() map[string][]string {
	return map[string][]string{"dvfs": {"rapl/sysfs"}, "thermal": {"rapl/sysfs"}}
}

// listed names the project's own files, which tools/files.sh tells from everything else
// that may lie in the folder. It runs once for all tests.
var listed = sync.OnceValues(func() ([]string, error) {
	out, err := exec.Command("sh", "tools/files.sh").Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("tools/files.sh: %s", exit.Stderr)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n"), err
})

// tracked is listed, for tests.
func tracked(t *testing.T) []string {
	t.Helper()
	files, err := listed()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// pkg is one package of the module, without its tests.
type pkg struct {
	path    string // import path below the module, "" for the root
	name    string
	doc     string
	files   []*ast.File
	imports map[string]bool
}

func (p *pkg) folder() string {
	top, _, _ := strings.Cut(p.path, "/")
	return top
}

// house is the module, parsed.
type house struct {
	fset *token.FileSet
	pkgs map[string]*pkg
}

// parsed reads the module once per test binary; the result is never changed.
var parsed = sync.OnceValues(parse)

func read(t *testing.T) (*token.FileSet, map[string]*pkg) {
	t.Helper()
	h, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return h.fset, h.pkgs
}

func parse() (house, error) {
	fset, pkgs := token.NewFileSet(), map[string]*pkg{}
	files, err := listed()
	for _, f := range files {
		if err == nil && isSource(f) && !strings.HasSuffix(f, "_test.go") {
			err = add(fset, pkgs, f)
		}
	}
	return house{fset, pkgs}, err
}

// isSource reports whether a file is Go that this module builds or tests.
func isSource(file string) bool {
	hidden := func(folder string) bool {
		return strings.HasPrefix(folder, ".") || strings.HasPrefix(folder, "_") || folder == "testdata"
	}
	// internal/pins only holds dependencies until their users exist.
	return strings.HasSuffix(file, ".go") && !slices.ContainsFunc(strings.Split(file, "/"), hidden) && !strings.HasPrefix(file, "internal/pins/") &&
		!strings.HasPrefix(file, "tools/") && !strings.HasPrefix(file, "hooks/")
}

func add(fset *token.FileSet, pkgs map[string]*pkg, path string) error {
	src, err := os.ReadFile(path)
	if err != nil || isGenerated(src) {
		return err
	}
	f, err := parser.ParseFile(fset, path, src, parser.ParseComments)
	if err != nil {
		return err
	}
	dir := filepath.ToSlash(filepath.Dir(path))
	if dir == "." {
		dir = ""
	}
	p := pkgs[dir]
	if p == nil {
		p = &pkg{path: dir, name: f.Name.Name, imports: map[string]bool{}}
		pkgs[dir] = p
	}
	p.files = append(p.files, f)
	if f.Doc != nil {
		p.doc += f.Doc.Text()
	}
	for _, i := range f.Imports {
		imported, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return err
		}
		p.imports[imported] = true
	}
	return nil
}

func isGenerated(src []byte) bool {
	return bytes.Contains(src, []byte("\n// Code generated ")) || bytes.HasPrefix(src, []byte("// Code generated "))
}

// A package comment has a few sentences: what the package is, its idea, what it guarantees.
const commentWords = 20

func TestEveryPackageExplainsItself(t *testing.T) {
	t.Parallel()
	_, pkgs := read(t)
	for path, p := range pkgs {
		opening := "Package " + p.name + " "
		if p.name == "main" {
			opening = "Command "
		}
		switch {
		case !strings.HasPrefix(p.doc, opening):
			t.Errorf("%s: the package comment must start with %q", path, opening)
		case p.name != "main" && len(strings.Fields(p.doc)) < commentWords:
			t.Errorf("%s: the package comment is too short; it names what the package is, its idea, its guarantees, what it never does", path)
		}
	}
}

// go doc makes paragraphs and lists of blank lines and indents; a bar would stand in its text.
func TestCommentsHaveNoBars(t *testing.T) {
	t.Parallel()
	for _, file := range tracked(t) {
		if !isSource(file) {
			continue
		}
		n := 0
		for line := range strings.Lines(string(testkit.Need(os.ReadFile(file))(t))) {
			if n++; strings.HasPrefix(strings.TrimSpace(line), "// |") {
				t.Errorf("%s:%d: a paragraph begins after a blank line, not with a bar", file, n)
			}
		}
	}
}

func TestExportedNamesAreDocumented(t *testing.T) {
	t.Parallel()
	fset, pkgs := read(t)
	for _, p := range pkgs {
		for _, f := range p.files {
			for _, decl := range f.Decls {
				for _, name := range undocumented(decl) {
					t.Errorf("%s: %s has no comment", fset.Position(name.Pos()), name.Name)
				}
			}
		}
	}
}

// undocumented are the exported names of a declaration without a comment.
func undocumented(decl ast.Decl) []*ast.Ident {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && d.Doc == nil && receiverExported(d) {
			return []*ast.Ident{d.Name}
		}
	case *ast.GenDecl:
		var names []*ast.Ident
		for _, spec := range d.Specs {
			names = append(names, undocumentedSpec(d, spec)...)
		}
		return names
	}
	return nil
}

func undocumentedSpec(d *ast.GenDecl, spec ast.Spec) []*ast.Ident {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		if s.Name.IsExported() && s.Doc == nil && (d.Doc == nil || len(d.Specs) > 1) {
			return []*ast.Ident{s.Name}
		}
	case *ast.ValueSpec:
		// One comment may stand for a group of constants or errors.
		if s.Doc == nil && s.Comment == nil && d.Doc == nil {
			return slices.DeleteFunc(slices.Clone(s.Names), func(n *ast.Ident) bool { return !n.IsExported() })
		}
	}
	return nil
}

// receiverExported reports whether a method can be reached by name from outside.
func receiverExported(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	typ := d.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	switch x := typ.(type) {
	case *ast.IndexExpr:
		typ = x.X
	case *ast.IndexListExpr:
		typ = x.X
	}
	id, ok := typ.(*ast.Ident)
	return ok && id.IsExported()
}

func TestImportsPointDown(t *testing.T) {
	t.Parallel()
	_, pkgs := read(t)
	for path, p := range pkgs {
		from := layers()[p.folder()]
		if from == unknown {
			t.Errorf("%s: folder %q has no layer; give it one in layers()", path, p.folder())
			continue
		}
		for imported := range p.imports {
			if other, ok := strings.CutPrefix(imported, module+"/"); ok {
				checkImport(t, p, from, other)
			}
		}
	}
}

func checkImport(t *testing.T, p *pkg, from layer, other string) {
	t.Helper()
	folder, _, _ := strings.Cut(other, "/")
	to := layers()[folder]
	switch {
	case folder == p.folder():
	case from == edge && to == edge && !slices.Contains(edgesMet()[p.folder()], folder):
		t.Errorf("%s imports %s: edges do not import each other", p.path, other)
	case from == device && to == device && !slices.Contains(devicesMet()[p.folder()], other):
		t.Errorf("%s imports %s: device packages do not import each other", p.path, other)
	case from == device && other == "internal/rpc":
		t.Errorf("%s imports %s: device packages do not use RPC", p.path, other)
	case from != to && !slices.Contains(below()[from], to):
		t.Errorf("%s imports %s: imports point down only", p.path, other)
	}
}

// reach is everything that a package links, through our own packages.
func reach(pkgs map[string]*pkg, start string) map[string]bool {
	seen, todo := map[string]bool{}, []string{module + "/" + start}
	for len(todo) > 0 {
		next := todo[0]
		todo = todo[1:]
		if seen[next] {
			continue
		}
		seen[next] = true
		if p := pkgs[strings.TrimPrefix(next, module+"/")]; p != nil && strings.HasPrefix(next, module+"/") {
			todo = append(todo, slices.Collect(maps.Keys(p.imports))...)
		}
	}
	return seen
}

// What ships is a module of its own: without the lab it builds and passes its tests.
func TestNothingShippedImportsTheLab(t *testing.T) {
	t.Parallel()
	for _, file := range tracked(t) {
		if !isSource(file) || strings.HasPrefix(file, "lab/") {
			continue
		}
		f := testkit.Need(parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly))(t)
		for _, i := range f.Imports {
			if strings.HasPrefix(i.Path.Value, `"headroom/lab`) {
				t.Errorf("%s imports %s", file, i.Path.Value)
			}
		}
	}
	for _, m := range []string{"gonum.org/v1/plot", "github.com/hanwen/go-fuse", "headroom/lab"} {
		if text := testkit.Need(os.ReadFile("go.mod"))(t); bytes.Contains(text, []byte(m)) {
			t.Errorf("go.mod requires %s, which only the lab needs", m)
		}
	}
}

// needLab leaves a test of the whole repository where the lab is not there.
func needLab(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("lab/go.mod"); err != nil {
		testkit.NotRun(t, "needs lab/, which this clone lacks")
	}
}

func TestWhatProgramsLink(t *testing.T) {
	t.Parallel()
	_, pkgs := read(t)
	for start, forbidden := range map[string][]string{
		"cmd/powerd":      {"headroom/lab", "headroom/consensus", "github.com/hashicorp/raft", "os/exec"},
		"cmd/coordinator": {"headroom/lab", "os/exec"},
		"cmd/scheduler":   {"headroom/lab", "headroom/consensus", "github.com/hashicorp/raft"},
	} {
		for linked := range reach(pkgs, start) {
			for _, f := range forbidden {
				if linked == f || strings.HasPrefix(linked, f+"/") {
					t.Errorf("%s links %s", start, linked)
				}
			}
		}
	}
}

// The outside judge shares no code with what it tests, except the API.
func TestOutsideJudgeSharesNoCode(t *testing.T) {
	t.Parallel()
	needLab(t)
	_, pkgs := read(t)
	p := pkgs["lab/faults"]
	if p == nil {
		t.Fatal("there is no package lab/faults")
	}
	for imported := range p.imports {
		if strings.HasPrefix(imported, module+"/") && !strings.HasPrefix(imported, module+"/api/") {
			t.Errorf("faults imports %s: the outside judge uses the API only", imported)
		}
	}
}

// The simulation tests the production code: what it commits, grants and reports
// comes from the state machines that powerd and the coordinator drive.
func TestSimulationMakesNothingUp(t *testing.T) {
	t.Parallel()
	needLab(t)
	fset, pkgs := read(t)
	made := map[string]bool{"ledger.Command": true, "ledger.Tick": true, "ledger.Report": true, "lease.Grant": true, "lease.Heartbeat": true}
	for _, f := range pkgs["lab/simulation"].files {
		ast.Inspect(f, func(n ast.Node) bool {
			x, ok := n.(*ast.CompositeLit)
			if !ok || len(x.Elts) == 0 {
				return true
			}
			if sel, ok := x.Type.(*ast.SelectorExpr); ok {
				if of, ok := sel.X.(*ast.Ident); ok && made[of.Name+"."+sel.Sel.Name] {
					t.Errorf("%v: the simulation makes a %s.%s of its own", fset.Position(x.Pos()), of.Name, sel.Sel.Name)
				}
			}
			return true
		})
	}
	for _, driven := range []string{"agent", "coordinator", "lab/simulation"} {
		machine := map[string]string{"agent": "lease", "coordinator": "ledger/leader", "lab/simulation": "ledger/leader"}[driven]
		if !pkgs[driven].imports[module+"/"+machine] {
			t.Errorf("%s does not drive %s", driven, machine)
		}
	}
}

// Schedules name time zones, which many servers have no files of.
func TestCoordinatorBringsTimeZones(t *testing.T) {
	t.Parallel()
	_, pkgs := read(t)
	if !reach(pkgs, "cmd/coordinator")["time/tzdata"] {
		t.Error("cmd/coordinator does not link time/tzdata: a server without /usr/share/zoneinfo skips schedules")
	}
}

// pureMayNot are the standard packages that would let a pure package see or
// change the world.
func pureMayNot() []string {
	return []string{"os", "net", "io/fs", "syscall", "math/rand", "crypto/rand", "log", "log/slog", "runtime", "unsafe"}
}

func TestPurePackagesArePure(t *testing.T) {
	t.Parallel()
	fset, pkgs := read(t)
	for path, p := range pkgs {
		if layers()[p.folder()] != pure {
			continue
		}
		for imported := range p.imports {
			for _, f := range pureMayNot() {
				if imported == f || strings.HasPrefix(imported, f+"/") {
					t.Errorf("%s imports %s: pure packages do no I/O", path, imported)
				}
			}
		}
		for _, f := range p.files {
			ast.Inspect(f, func(n ast.Node) bool {
				if g, ok := n.(*ast.GoStmt); ok {
					t.Errorf("%s: pure packages start no goroutine", fset.Position(g.Pos()))
				}
				return true
			})
		}
	}
}

// Only what starts the work of others may start programs. Of powerd that is one
// line of its command line: `powerd measure -- CMD`.
func TestDevicesAndAgentStartNoPrograms(t *testing.T) {
	t.Parallel()
	fset, pkgs := read(t)
	measured := 0
	for path, p := range pkgs {
		if layers()[p.folder()] != device && p.folder() != "agent" {
			continue
		}
		if p.imports["os/exec"] {
			t.Errorf("%s imports os/exec: powerd starts no programs", path)
		}
		for _, f := range p.files {
			for _, start := range starts(f) {
				if at := fset.Position(start); at.Filename == filepath.Join("agent", "command", "measure.go") {
					measured++
				} else {
					t.Errorf("%s: powerd starts no programs", at)
				}
			}
		}
	}
	if measured != 1 {
		t.Errorf("powerd measure starts programs in %d places, want 1", measured)
	}
}

// starts are the places where a file starts a program without os/exec.
func starts(f *ast.File) []token.Pos {
	var found []token.Pos
	ast.Inspect(f, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		from, ok := s.X.(*ast.Ident)
		if ok && slices.Contains([]string{"os.StartProcess", "syscall.StartProcess", "syscall.ForkExec", "syscall.Exec", "unix.Exec"}, from.Name+"."+s.Sel.Name) {
			found = append(found, s.Pos())
		}
		return true
	})
	return found
}
