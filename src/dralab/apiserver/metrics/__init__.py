"""The metrics of a server, by kube-apiserver's names and labels.

`meters` count and time, `families` names what is measured while requests are answered. What is read
when it is asked for is left to `apiserver.server_gauges`, totals and durations of requests to
`http.request_metrics`, the page itself to `http.pages`.
"""
