// The Go implementations of strategic merge and of field ownership, as an oracle: reads one case
// per line, writes its result.
//
//	{"op": "strategic", "original": {...}, "patch": {...}}
//	{"op": "ownership", "steps": [{"manager": "ann", "apply": true, "force": true, "object": {...}}]}
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

type step struct {
	Manager string          `json:"manager"`
	Apply   bool            `json:"apply"`
	Force   bool            `json:"force"`
	Object  json.RawMessage `json:"object"`
}
type request struct {
	Op       string          `json:"op"`
	Original json.RawMessage `json:"original"`
	Patch    json.RawMessage `json:"patch"`
	Steps    []step          `json:"steps"`
}

const schemaText = `types:
- name: foo
  map:
    fields:
    - name: spec
      type: {namedType: spec}
- name: spec
  map:
    fields:
    - {name: "n", type: {scalar: numeric}}
    - name: tags
      type: {list: {elementType: {scalar: string}, elementRelationship: associative}}
    - name: parts
      type: {list: {elementType: {namedType: part}, elementRelationship: associative, keys: [name]}}
    - name: whole
      type: {map: {elementType: {scalar: numeric}, elementRelationship: atomic}}
    - name: labels
      type: {map: {elementType: {scalar: numeric}}}
    - name: plain
      type: {list: {elementType: {scalar: numeric}, elementRelationship: atomic}}
- name: part
  map:
    fields:
    - {name: name, type: {scalar: string}}
    - {name: a, type: {scalar: numeric}}
    - {name: b, type: {scalar: numeric}}
    - name: subs
      type: {list: {elementType: {namedType: part}, elementRelationship: associative, keys: [name]}}
`

type same struct{}

func (same) Convert(o *typed.TypedValue, v fieldpath.APIVersion) (*typed.TypedValue, error) {
	return o, nil
}
func (same) IsMissingVersionError(error) bool { return false }

func main() {
	parser, err := typed.NewParser(typed.YAMLObject(schemaText))
	if err != nil {
		panic(err)
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 1<<20), 1<<24)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for in.Scan() {
		var r request
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			panic(err)
		}
		var answer any
		if r.Op == "strategic" {
			res, err := strategicpatch.StrategicMergePatch(r.Original, r.Patch, corev1.Pod{})
			if err != nil {
				answer = map[string]any{"error": err.Error()}
			} else {
				answer = map[string]any{"result": json.RawMessage(res)}
			}
		} else {
			answer = ownership(parser, r.Steps)
		}
		text, err := json.Marshal(answer)
		if err != nil {
			panic(err)
		}
		fmt.Fprintln(out, string(text))
	}
}

func ownership(parser *typed.Parser, steps []step) any {
	updater := (&merge.UpdaterBuilder{Converter: same{}, ReturnInputOnNoop: true}).BuildUpdater()
	t := parser.Type("foo")
	live, err := t.FromUnstructured(map[string]any{"spec": map[string]any{}})
	if err != nil {
		panic(err)
	}
	managers := fieldpath.ManagedFields{}
	results := []any{}
	for _, s := range steps {
		obj, err := t.FromYAML(typed.YAMLObject(s.Object), typed.AllowDuplicates)
		if err != nil {
			results = append(results, map[string]any{"error": err.Error()})
			continue
		}
		if s.Apply {
			found, m, err := updater.Apply(live, obj, "v1", managers.Copy(), s.Manager, s.Force)
			if err != nil {
				results = append(results, map[string]any{"conflict": err.Error()})
				continue
			}
			if found != nil {
				live = found
			}
			managers = m
		} else {
			found, m, err := updater.Update(live, obj, "v1", managers.Copy(), s.Manager)
			if err != nil {
				results = append(results, map[string]any{"error": err.Error()})
				continue
			}
			live, managers = found, m
		}
		sets := map[string]json.RawMessage{}
		for name, set := range managers {
			text, _ := set.Set().ToJSON()
			sets[name] = text
		}
		text, err := value.ToJSON(live.AsValue())
		if err != nil {
			panic(err)
		}
		results = append(results, map[string]any{"object": json.RawMessage(text), "managers": sets})
	}
	return results
}
