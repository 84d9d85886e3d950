"""A Kubernetes control plane of the embedded stack, and what stands in for its kubelets: `koord up --kubernetes`.

etcd, kube-apiserver and kube-controller-manager are programs of the user's machine (`programs`). `control_plane`
declares their processes, `installing` creates the objects that the manager needs, and `kubelets` lets bound pods run.
"""
