"""Arguments of plugins as users write them: common arguments of several plugins, and arguments of each native plugin.

The models check types. Each module has a function that checks values; when it is called depends on the plugin
(descheduler spec, 3.3).
"""
