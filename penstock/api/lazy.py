"""The public names whose modules are imported on first use: companions that a program may or may not touch.

A line says which module of this folder holds which public names; `name=attribute` where the two differ. Modules listed here
do not use `@export`, and `import penstock` does not import them.
"""

from __future__ import annotations

from penstock.api.export import export_lazy

LAZY: dict[str, str] = {
    "app": "app.run",
    "flags": "flags=MODULE app.flags=MODULE",
    "gfile": """
        gfile.GFile gfile.Open=GFile gfile.FastGFile gfile.Exists gfile.Glob gfile.IsDirectory gfile.ListDirectory gfile.MakeDirs
        gfile.MkDir gfile.Remove gfile.DeleteRecursively gfile.Rename gfile.Copy gfile.Stat gfile.Walk io.gfile.GFile
        io.gfile.copy io.gfile.exists io.gfile.get_registered_schemes io.gfile.glob io.gfile.isdir io.gfile.join
        io.gfile.listdir io.gfile.makedirs io.gfile.mkdir io.gfile.remove io.gfile.rename io.gfile.rmtree io.gfile.stat
        io.gfile.walk""",
    "gpus": """
        test.gpu_device_name test.is_gpu_available test.is_built_with_cuda test.is_built_with_gpu_support test.is_built_with_rocm
        test.is_built_with_xla""",
    "image.boxes": """
        image.crop_and_resize image.extract_patches image.draw_bounding_boxes image.non_max_suppression
        image.non_max_suppression_with_scores image.non_max_suppression_overlaps image.non_max_suppression_padded
        image.combined_non_max_suppression image.sample_distorted_bounding_box image.extract_glimpse""",
    "image.color": """
        image.convert_image_dtype image.adjust_brightness image.random_brightness image.adjust_contrast
        image.random_contrast image.adjust_gamma image.rgb_to_grayscale image.grayscale_to_rgb image.rgb_to_hsv
        image.hsv_to_rgb image.adjust_hue image.random_hue image.adjust_saturation image.random_saturation
        image.rgb_to_yiq image.yiq_to_rgb image.rgb_to_yuv image.yuv_to_rgb image.per_image_standardization""",
    "image.measures": """
        image.total_variation image.psnr image.ssim image.ssim_multiscale image.image_gradients image.sobel_edges""",
    "image.resize": """
        image.ResizeMethod image.resize image.resize_images image.resize_bilinear image.resize_nearest_neighbor
        image.resize_bicubic image.resize_area image.resize_image_with_pad""",
    "image.shapes": """
        image.flip_left_right image.flip_up_down image.random_flip_left_right image.random_flip_up_down image.rot90
        image.transpose image.transpose_image image.central_crop image.crop_to_bounding_box image.pad_to_bounding_box
        image.resize_with_crop_or_pad image.resize_image_with_crop_or_pad""",
    "layers.base": "layers.Layer layers.InputSpec",
    "layers.core": "layers.Dense layers.dense layers.Dropout layers.dropout layers.Flatten layers.flatten",
    "layers.convolutional": """
        layers.Conv1D layers.Conv2D layers.Conv3D layers.SeparableConv1D layers.SeparableConv2D layers.Conv2DTranspose
        layers.Conv3DTranspose layers.conv1d layers.conv2d layers.conv3d layers.separable_conv1d layers.separable_conv2d
        layers.conv2d_transpose layers.conv3d_transpose""",
    "layers.pooling": """
        layers.MaxPooling1D layers.MaxPooling2D layers.MaxPooling3D layers.AveragePooling1D layers.AveragePooling2D
        layers.AveragePooling3D layers.max_pooling1d layers.max_pooling2d layers.max_pooling3d layers.average_pooling1d
        layers.average_pooling2d layers.average_pooling3d""",
    "layers.normalization": "layers.BatchNormalization layers.batch_normalization",
    "logging": """
        get_logger logging.DEBUG logging.ERROR logging.FATAL logging.INFO logging.WARN logging.TaskLevelStatusMessage
        logging.debug logging.error logging.fatal logging.flush logging.get_verbosity logging.info logging.log
        logging.log_every_n logging.log_first_n logging.log_if logging.set_verbosity logging.vlog logging.warn
        logging.warning""",
    "resource_loader": """
        resource_loader.get_data_files_path resource_loader.get_path_to_datafile
        resource_loader.get_root_dir_with_all_resources resource_loader.load_resource resource_loader.readahead_file_path""",
    "sysconfig": """
        sysconfig.get_build_info sysconfig.get_compile_flags sysconfig.get_include sysconfig.get_lib
        sysconfig.get_link_flags""",
    "config": """
        config.LogicalDevice config.LogicalDeviceConfiguration config.PhysicalDevice config.list_physical_devices
        config.list_logical_devices config.get_visible_devices config.set_visible_devices
        config.get_logical_device_configuration config.set_logical_device_configuration config.get_soft_device_placement
        config.set_soft_device_placement config.functions_run_eagerly config.run_functions_eagerly
        config.experimental_functions_run_eagerly=functions_run_eagerly
        config.experimental_run_functions_eagerly=run_functions_eagerly
        config.threading.get_inter_op_parallelism_threads config.threading.get_intra_op_parallelism_threads
        config.threading.set_inter_op_parallelism_threads config.threading.set_intra_op_parallelism_threads
        config.optimizer.get_experimental_options config.optimizer.get_jit config.optimizer.set_experimental_options
        config.optimizer.set_jit config.experimental.VirtualDeviceConfiguration=LogicalDeviceConfiguration
        config.experimental.enable_op_determinism config.experimental.list_physical_devices config.experimental.list_logical_devices
        config.experimental.get_visible_devices config.experimental.set_visible_devices
        config.experimental.get_virtual_device_configuration=get_logical_device_configuration
        config.experimental.set_virtual_device_configuration=set_logical_device_configuration
        config.experimental.get_device_details config.experimental.get_device_policy config.experimental.get_memory_growth
        config.experimental.set_memory_growth config.experimental.get_memory_info config.experimental.get_memory_usage
        config.experimental.reset_memory_stats config.experimental.get_synchronous_execution
        config.experimental.set_synchronous_execution config.experimental.tensor_float_32_execution_enabled
        config.experimental.enable_tensor_float_32_execution debugging.get_log_device_placement
        debugging.set_log_device_placement debugging.is_traceback_filtering_enabled debugging.enable_traceback_filtering
        debugging.disable_traceback_filtering""",
    "rnn.cells": """
        nn.rnn_cell.RNNCell nn.rnn_cell.BasicRNNCell nn.rnn_cell.BasicLSTMCell nn.rnn_cell.LSTMCell nn.rnn_cell.GRUCell
        nn.rnn_cell.MultiRNNCell nn.rnn_cell.LSTMStateTuple""",
    "rnn.wrappers": "nn.rnn_cell.DropoutWrapper nn.rnn_cell.ResidualWrapper nn.rnn_cell.DeviceWrapper",
    "rnn.dynamic": "nn.dynamic_rnn nn.bidirectional_dynamic_rnn nn.raw_rnn",
    "rnn.static": "nn.static_rnn nn.static_bidirectional_rnn nn.static_state_saving_rnn",
    "sort_ops": "sort argsort",
    "specs": "TensorSpec SparseTensorSpec IndexedSlicesSpec TensorArraySpec TypeSpec type_spec_from_value",
    "status": "errors.raise_exception_on_not_ok_status",
    "template": "make_template",
    "confusion": "confusion_matrix math.confusion_matrix",
    "metrics.means": """
        metrics.mean metrics.mean_tensor metrics.accuracy metrics.mean_absolute_error metrics.mean_squared_error
        metrics.root_mean_squared_error metrics.mean_relative_error metrics.mean_cosine_distance metrics.percentage_below
        metrics.mean_iou metrics.mean_per_class_accuracy""",
    "metrics.counts": """
        metrics.true_positives metrics.true_negatives metrics.false_positives metrics.false_negatives metrics.precision
        metrics.recall""",
    "metrics.thresholds": """
        metrics.true_positives_at_thresholds metrics.true_negatives_at_thresholds metrics.false_positives_at_thresholds
        metrics.false_negatives_at_thresholds metrics.precision_at_thresholds metrics.recall_at_thresholds metrics.auc
        metrics.sensitivity_at_specificity metrics.specificity_at_sensitivity""",
    "metrics.ranking": """
        metrics.recall_at_top_k metrics.precision_at_top_k metrics.recall_at_k metrics.precision_at_k
        metrics.sparse_precision_at_k metrics.average_precision_at_k metrics.sparse_average_precision_at_k""",
    "monitored.run_hook": "train.SessionRunHook train.SessionRunArgs train.SessionRunContext train.SessionRunValues",
    "monitored.hooks": """
        train.CheckpointSaverHook train.CheckpointSaverListener train.FeedFnHook train.FinalOpsHook train.GlobalStepWaiterHook
        train.LoggingTensorHook train.NanLossDuringTrainingError train.NanTensorHook train.SecondOrStepTimer
        train.StepCounterHook train.StopAtStepHook train.SummarySaverHook""",
    "monitored.manager": "train.SessionManager",
    "monitored.scaffold": "train.Scaffold train.SessionCreator train.ChiefSessionCreator train.WorkerSessionCreator",
    "monitored.sessions": "train.MonitoredSession train.MonitoredTrainingSession train.SingularMonitoredSession",
}

#: Modules and packages of this folder that `import penstock` leaves alone.
MODULES = frozenset(f"penstock.api.{part}" for module in LAZY for part in (module, module.partition(".")[0]))

for _module, _names in LAZY.items():
    for _entry in _names.split():
        _public, _, _attribute = _entry.partition("=")
        export_lazy(_public, f"penstock.api.{_module}:{_attribute or _public.rpartition('.')[2]}")
