package metrics_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// dashboard is the part of dashboard.json that the tests read.
type dashboard struct {
	Panels []struct {
		ID      int
		Title   string
		Targets []struct{ Expr string }
	}
	Templating struct {
		List []struct {
			Name       string
			Definition string
		}
	}
}

// queries returns the queries of each panel and variable.
func (d *dashboard) queries() map[string][]string {
	queries := map[string][]string{}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			queries[p.Title] = append(queries[p.Title], target.Expr)
		}
	}
	for _, v := range d.Templating.List {
		if v.Definition != "" {
			queries[v.Name] = append(queries[v.Name], v.Definition)
		}
	}
	return queries
}

var (
	metricNames = regexp.MustCompile(`\btokenbucket_\w+`)
	selectors   = regexp.MustCompile(`(\w+)\s*(?:=~|!=|!~|=)\s*"`)
	groupings   = regexp.MustCompile(`by \(([\w, ]+)\)`)
	outcomes    = regexp.MustCompile(`outcome=~?"([^"]+)"`)
)

// Every metric, label and outcome in the queries exists, and the dashboard shows each metric.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	var d dashboard
	require.NoError(t, json.Unmarshal(text, &d))
	require.NotEmpty(t, d.Panels)

	labels, unshown := exposed(t)
	for where, queries := range d.queries() {
		for _, query := range queries {
			names := metricNames.FindAllString(query, -1)
			require.NotEmpty(t, names, where)
			for _, name := range names {
				require.Contains(t, labels, name, where)
				delete(unshown, strings.TrimSuffix(name, "_bucket"))
				for _, label := range labelsIn(query) {
					require.Contains(t, labels[name], label, "%s: %s has no such label", where, name)
				}
			}
			for _, match := range outcomes.FindAllStringSubmatch(query, -1) {
				for outcome := range strings.SplitSeq(match[1], "|") {
					require.Contains(t, []string{"admitted", "refused", "would_refuse", "fallback", "error"}, outcome, where)
				}
			}
		}
	}
	require.Empty(t, unshown, "no panel shows these")
}

func TestReadmeListsEveryMetricAndItsLabels(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	listed := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(tokenbucket_\\w+)` .* \\| (.*) \\|$").FindAllStringSubmatch(string(text), -1) {
		listed[row[1]] = row[2]
	}
	labels, names := exposed(t)
	require.Len(t, listed, len(names))
	for name := range names {
		of := labels[name]
		if of == nil {
			of = labels[name+"_count"]
		}
		require.ElementsMatch(t, of, strings.Split(listed[name], ", "), name)
	}
}

// exposed returns the labels of each series by its name, and the names of the metrics.
func exposed(t *testing.T) (labels map[string][]string, names map[string]bool) {
	c := newPrometheus(t)
	feed(t, c)
	families, err := c.Gather()
	require.NoError(t, err)
	labels, names = map[string][]string{}, map[string]bool{}
	for _, family := range families {
		var of []string
		for _, pair := range family.Metric[0].Label {
			of = append(of, pair.GetName())
		}
		names[family.GetName()] = true
		if family.Metric[0].Histogram == nil {
			labels[family.GetName()] = of
			continue
		}
		labels[family.GetName()+"_bucket"] = append(of, "le")
		labels[family.GetName()+"_sum"] = of
		labels[family.GetName()+"_count"] = of
	}
	return labels, names
}

func labelsIn(query string) (labels []string) {
	for _, match := range selectors.FindAllStringSubmatch(query, -1) {
		labels = append(labels, match[1])
	}
	for _, match := range groupings.FindAllStringSubmatch(query, -1) {
		labels = append(labels, strings.Split(match[1], ", ")...)
	}
	return labels
}
