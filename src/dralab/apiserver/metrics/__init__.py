"""What a server measures of itself, by kube-apiserver's names and labels.

`meters` count and time, `families` names what is measured while requests are answered, `gauges`
reads what is there when it is asked for. Totals and durations of requests are left to
`http.request_metrics`, the page itself to `http.pages`.
"""
