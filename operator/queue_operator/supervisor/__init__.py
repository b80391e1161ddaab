"""The processes beside the server's: each is started, watched, ended when it hangs, and started
again. The servers live in the parent process and do not notice.
"""
