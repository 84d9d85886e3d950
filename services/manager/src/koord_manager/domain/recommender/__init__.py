"""The recommender: what containers should request, from their past usage.

    model      histograms of one container of a target, fed by its instances      estimate   percentiles -> amounts
    targets    which pods a Recommendation looks at                               book       all models; samples in
    decide     conditions and amounts, as events                                  apply      requests at admission

Source:
    manager spec, 15
"""
