"""Families: pod equivalence classes that differ only in amounts, and share one evaluation of each changed node.

With `views`, every class evaluates every node that changed since its last look. With many classes, such as one for
each size of a part of a GPU, that is most of the work. The plugins tell which part of their results the classes of a
family share (`RowStates`). Nodes for which all classes get equal results are one cell. A class evaluates cells instead
of nodes.

families   finds the family of a class
cells      the nodes of one family, in cells
member     one class of a family: the best nodes among all cells

A family never changes an outcome: a view of the class gives the same choice (tested).
"""
