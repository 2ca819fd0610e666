// The reference: a scheduler extender as one writes it first in Go, with net/http, encoding/json and nothing else. The
// load tests ask it what they ask Escher and report the one as a ratio to the other.
//
// Read the ratio with what it does NOT do, for Escher does all of this and it costs time:
//
//   - it remembers nothing: no watch, no ledger, no reservation. It does not know which pods are on a node, so that with
//     whole nodes it compares a pod with the node's whole allocatable, and with names it lets every node through;
//   - it knows no gangs, policies or ephemeral resources, but for those that --offer says are on one node for ever, and
//     gives no reason but one;
//   - it writes nothing: bind answers without a Binding where --bind-without-writing allows it, and refuses otherwise,
//     for kube-scheduler would wait for such a pod for ever;
//   - it checks no client, logs nothing, has no metrics and no limit for the size of a body.
//
// It reads the few fields that it needs, not all of a Pod and a Node as one does with Kubernetes' own types, and hands
// nodes back with the bytes that they came with: that is in its favour. It decides on all cores; Escher on one.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
)

type object struct {
	Metadata struct {
		Name string `json:"name"`
		UID  string `json:"uid"`
	} `json:"metadata"`
	Spec struct {
		Containers []struct {
			Resources struct {
				Requests map[string]string `json:"requests"`
			} `json:"resources"`
		} `json:"containers"`
	} `json:"spec"`
	Status struct {
		Allocatable map[string]string `json:"allocatable"`
	} `json:"status"`
}

type nodeList struct {
	Metadata struct{}          `json:"metadata"`
	Items    []json.RawMessage `json:"items"`
}

type call struct {
	Pod       object
	Nodes     *nodeList
	NodeNames []string
}

type filterAnswer struct {
	Nodes                      *nodeList
	NodeNames                  []string
	FailedNodes                map[string]string
	FailedAndUnresolvableNodes map[string]string
	Error                      string
}

type score struct {
	Host  string
	Score uint32
}

type bindAnswer struct {
	Error string
}

type metaPod struct {
	UID string
}

type victims[P any] struct {
	Pods             []P
	NumPDBViolations int64
}

type preemptCall struct {
	NodeNameToVictims     map[string]victims[object]
	NodeNameToMetaVictims map[string]victims[metaPod]
}

type preemptAnswer struct {
	NodeNameToMetaVictims map[string]victims[metaPod]
}

var suffixes = map[string]float64{
	"n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
	"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60,
}

// quantity reads "250m", "4Gi", "1e3". A float64 is exact enough for a yardstick.
func quantity(text string) (float64, error) {
	number := strings.TrimRight(text, "numkMGTPEi")
	factor, known := suffixes[text[len(number):]]
	if number == text {
		factor, known = 1, true
	}
	value, err := strconv.ParseFloat(number, 64)
	if err != nil || !known {
		return 0, fmt.Errorf("%q is no quantity", text)
	}
	return value * factor, nil
}

// requests are the sums over the pod's containers; init containers and overhead are left out.
func requests(pod object) (map[string]float64, error) {
	sums := map[string]float64{}
	for _, container := range pod.Spec.Containers {
		for resource, text := range container.Resources.Requests {
			asked, err := quantity(text)
			if err != nil {
				return nil, err
			}
			sums[resource] += asked
		}
	}
	return sums, nil
}

func hasRoom(node object, asked map[string]float64) bool {
	for resource, amount := range asked {
		if offered, err := quantity(node.Status.Allocatable[resource]); amount > 0 && (err != nil || offered < amount) {
			return false
		}
	}
	return true
}

// offered has, by resource, the one node that offers it.
var offered = map[string]string{}

// placeOf is the one node for a pod that asks for what --offer has said; empty: any node.
func placeOf(pod object) string {
	for resource, node := range offered {
		for _, container := range pod.Spec.Containers {
			if _, asks := container.Resources.Requests[resource]; asks {
				return node
			}
		}
	}
	return ""
}

func filter(in call) (filterAnswer, error) {
	out := filterAnswer{FailedNodes: map[string]string{}, FailedAndUnresolvableNodes: map[string]string{}}
	if place := placeOf(in.Pod); in.Nodes == nil && place != "" {
		for _, name := range in.NodeNames {
			if name == place {
				out.NodeNames = append(out.NodeNames, name)
			} else {
				out.FailedNodes[name] = "too small"
			}
		}
		return out, nil
	}
	if in.Nodes == nil {
		out.NodeNames = in.NodeNames
		return out, nil
	}
	asked, err := requests(in.Pod)
	if err != nil {
		return out, err
	}
	out.Nodes = &nodeList{Items: []json.RawMessage{}}
	for _, item := range in.Nodes.Items {
		var node object
		if err := json.Unmarshal(item, &node); err != nil {
			return out, err
		}
		if hasRoom(node, asked) {
			out.Nodes.Items = append(out.Nodes.Items, item)
		} else {
			out.FailedNodes[node.Metadata.Name] = "too small"
		}
	}
	return out, nil
}

func prioritize(in call) ([]score, error) {
	names := in.NodeNames
	if in.Nodes != nil {
		for _, item := range in.Nodes.Items {
			var node object
			if err := json.Unmarshal(item, &node); err != nil {
				return nil, err
			}
			names = append(names, node.Metadata.Name)
		}
	}
	scores := []score{}
	for _, name := range names {
		hash := fnv.New32a()
		hash.Write([]byte(name))
		scores = append(scores, score{name, hash.Sum32() % 11})
	}
	return scores, nil
}

func preempt(in preemptCall) (preemptAnswer, error) {
	out := preemptAnswer{in.NodeNameToMetaVictims}
	if out.NodeNameToMetaVictims == nil {
		out.NodeNameToMetaVictims = map[string]victims[metaPod]{}
	}
	for node, full := range in.NodeNameToVictims {
		meta := victims[metaPod]{NumPDBViolations: full.NumPDBViolations}
		for _, pod := range full.Pods {
			meta.Pods = append(meta.Pods, metaPod{pod.Metadata.UID})
		}
		out.NodeNameToMetaVictims[node] = meta
	}
	return out, nil
}

func serve[In, Out any](verb string, decide func(In) (Out, error)) {
	http.HandleFunc("POST /scheduler/"+verb, func(w http.ResponseWriter, r *http.Request) {
		var in In
		err := json.NewDecoder(r.Body).Decode(&in)
		var out Out
		if err == nil {
			out, err = decide(in)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body, _ := json.Marshal(out) // none of the answers can fail to be JSON
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.Write(body)
	})
}

func main() {
	listen := flag.String("listen", "127.0.0.1:9090", "`address` to serve HTTP on; port 0 chooses a free one")
	silent := flag.Bool("bind-without-writing", false, "answer bind as if the Binding had been written; for load tests only")
	offer := "`RESOURCE=NODE`: of names, only this node passes for a pod that asks for that; may be given again"
	flag.Func("offer", offer, func(text string) error {
		resource, node, found := strings.Cut(text, "=")
		if !found || resource == "" || node == "" {
			return fmt.Errorf("%q is not RESOURCE=NODE", text)
		}
		offered[resource] = node
		return nil
	})
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), "reference: a scheduler extender in plain Go, the yardstick of Escher's load tests\n\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	serve("filter", filter)
	serve("prioritize", prioritize)
	serve("preempt", preempt)
	serve("bind", func(struct{ PodUID, Node string }) (bindAnswer, error) {
		if *silent {
			return bindAnswer{}, nil
		}
		return bindAnswer{"the reference writes no Bindings (--bind-without-writing pretends to)"}, nil
	})
	listener, err := net.Listen("tcp", *listen)
	if err == nil {
		fmt.Printf("http://%s\n", listener.Addr())
		err = http.Serve(listener, nil)
	}
	fmt.Fprintln(os.Stderr, "reference:", err)
	os.Exit(1)
}
